// linear: the product of every row with a matrix, spread over panels and blocks of rows.
#include <algorithm>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/panel_product.h"

namespace strata {
namespace {

using cpu::kBlockRows;
using cpu::kGroupPanels;

void check_linear(const Tensor& out, const Tensor& x, const Weight& w, const Tensor& bias) {
  STRATA_CHECK(w.shape.rank() == 2, "linear: weight {} is not a matrix", w.shape.to_string());
  STRATA_CHECK(x.row_size() == w.inputs(), "linear inputs: x {}, weight {}", x.row_size(), w.inputs());
  STRATA_CHECK(out.row_size() == w.outputs(), "linear outputs: out {}, weight {}", out.row_size(), w.outputs());
  STRATA_CHECK(out.rows() == x.rows(), "linear rows: out {}, x {}", out.rows(), x.rows());
  STRATA_CHECK(bias.empty() || bias.elements() == w.outputs(), "linear bias: {}, outputs {}", bias.elements(), w.outputs());
}

}  // namespace

void CpuOps::linear(Tensor out, Tensor x, const Weight& w, Tensor bias) {
  check_linear(out, x, w, bias);
  const std::int64_t rows = x.rows(), panels = cpu::panels_of(w.outputs());
  if (rows == 0) return;
  // One row: pieces of 8 panels, fewer when that leaves threads idle. More rows: a group of panels by a block of rows.
  const std::int64_t wide = rows > 1 ? kGroupPanels : std::clamp<std::int64_t>(panels / (threads_->size() * 4), 1, 8);
  const std::int64_t groups = (panels + wide - 1) / wide;
  const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const std::int64_t block_rows = (rows + blocks - 1) / blocks;
  const auto body = scalar_ ? cpu::panel_product_scalar : cpu::panel_product;
  threads_->parallel_for(groups * blocks, [&](std::int64_t piece) {
    const std::int64_t block = piece / groups, group = piece % groups;
    const std::int64_t row = block * block_rows, end = std::min(rows, row + block_rows);
    const float* xs[kBlockRows];
    float* outs[kBlockRows];
    for (std::int64_t r = row; r < end; ++r) {
      xs[r - row] = x.row<float>(r);
      outs[r - row] = out.row<float>(r);
    }
    if (end <= row) return;
    body({.dtype = w.dtype,
          .weights = w.data.raw(),
          .scales = w.scales.empty() ? nullptr : w.scales.data<float>(),
          .bias = bias.empty() ? nullptr : bias.data<float>(),
          .inputs = w.inputs(),
          .outputs = w.outputs(),
          .first_panel = group * wide,
          .panels = std::min(wide, panels - group * wide),
          .x = xs,
          .out = outs,
          .rows = static_cast<int>(end - row)});
  });
}

}  // namespace strata
