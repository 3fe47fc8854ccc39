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

  // One row: pieces of at most 8 panels, small enough that no thread is left to wait for the last. More rows:
  // a group of panels by a block of rows.
  const std::int64_t panels = matrix.panels();
  const std::int64_t wide =
      rows > 1 ? kGroupPanels : std::clamp<std::int64_t>(panels / (threads_->size() * 8), 1, 8);
  const std::int64_t groups = (panels + wide - 1) / wide, blocks = (rows + kBlockRows - 1) / kBlockRows;
  threads_->parallel_for(groups * blocks, [&](std::int64_t piece) {
    const std::int64_t row = piece / groups * kBlockRows, panel = piece % groups * wide;
    const auto count = static_cast<int>(std::min<std::int64_t>(kBlockRows, rows - row));
    left.multiply(matrix, row, count, panel, std::min(wide, panels - panel), outs + row);
  });
}

}  // namespace strata
