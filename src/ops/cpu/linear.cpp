// linear: the product of every row with a matrix, spread over panels and blocks of rows.
#include <algorithm>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/products.h"

namespace strata {
namespace {

using cpu::kBlockRows;
using cpu::kGroupPanels;

void check_linear(const Tensor& out, const Tensor& x, const Weight& w, const Tensor& bias) {
  STRATA_CHECK(w.shape.rank() == 2, "linear: weight {} is not a matrix", w.shape.to_string());
  STRATA_CHECK(x.row_size() == w.inputs(), "linear inputs: x {}, weight {}", x.row_size(), w.inputs());
  STRATA_CHECK(out.row_size() == w.outputs(), "linear outputs: out {}, weight {}", out.row_size(),
               w.outputs());
  STRATA_CHECK(out.rows() == x.rows(), "linear rows: out {}, x {}", out.rows(), x.rows());
  STRATA_CHECK(bias.empty() || bias.elements() == w.outputs(), "linear bias: {}, outputs {}", bias.elements(),
               w.outputs());
}

}  // namespace

void CpuOps::linear(Tensor out, Tensor x, const Weight& w, Tensor bias) {
  check_linear(out, x, w, bias);
  const std::int64_t rows = x.rows();
  if (rows == 0) return;
  if (!w.parts.empty()) {
    const Tensor all = out.reshape({rows, w.outputs()});
    for (std::int64_t at = 0; const Weight& part : w.parts) {
      const Tensor own = bias.empty() ? bias : Tensor(bias.data<float>() + at, DType::kF32, {part.outputs()});
      linear(all.columns(at, part.outputs()), x, part, own);
      at += part.outputs();
    }
    return;
  }
  weight_bytes_read_ += w.storage.bytes();
  const Scratch scratch(arena());
  const auto** xs = reinterpret_cast<const float**>(make({rows}, DType::kI64).raw());
  auto** outs = reinterpret_cast<float**>(make({rows}, DType::kI64).raw());
  for (std::int64_t t = 0; t < rows; ++t) {
    xs[t] = x.row<float>(t);
    outs[t] = out.row<float>(t);
  }
  const cpu::MatrixView matrix(w, bias);
  const cpu::LeftRows left(kernels_, *threads_, arena(), w.dtype, w.inputs(), xs, rows);

  const std::int64_t panels = matrix.panels();
  if (rows == 1) {
    // Memory bounds it: long pieces, which stream, then shorter ones down to a panel, so that no thread waits
    // for another's.
    const std::int64_t shares = 2 * threads_->size();
    std::int64_t* first = make({panels + 1}, DType::kI64).data<std::int64_t>();
    std::int64_t pieces = 0;
    for (std::int64_t at = 0; at < panels; at += std::max<std::int64_t>((panels - at) / shares, 1))
      first[pieces++] = at;
    first[pieces] = panels;
    threads_->parallel_for(pieces, [&](std::int64_t i) {
      left.multiply(matrix, 0, 1, first[i], first[i + 1] - first[i], outs);
    });
    return;
  }
  const std::int64_t groups = (panels + kGroupPanels - 1) / kGroupPanels,
                     blocks = (rows + kBlockRows - 1) / kBlockRows;
  threads_->parallel_for(groups * blocks, [&](std::int64_t piece) {
    const std::int64_t row = piece / groups * kBlockRows, panel = piece % groups * kGroupPanels;
    const auto count = static_cast<int>(std::min<std::int64_t>(kBlockRows, rows - row));
    left.multiply(matrix, row, count, panel, std::min<std::int64_t>(kGroupPanels, panels - panel),
                  outs + row);
  });
}

}  // namespace strata
