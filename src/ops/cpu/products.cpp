#include "ops/cpu/products.h"

namespace strata::cpu {

MatrixView::MatrixView(const Weight& w, const Tensor& bias_of, std::int64_t expert)
    : dtype(w.dtype), inputs(w.inputs()), outputs(w.outputs()) {
  weights = w.data.raw() + static_cast<std::size_t>(expert * panels()) * packed_panel_bytes(dtype, inputs);
  if (!w.scales.empty()) scales = w.scales.row<float>(expert * panels());
  if (!bias_of.empty()) bias = bias_of.data<float>() + expert * outputs;
}

LeftRows::LeftRows(const ProductKernels& kernels, ThreadPool& threads, Arena& arena, DType weights, std::int64_t inputs,
                   const float* const* rows, std::int64_t count)
    : kernels_(kernels), rows_(rows) {
  if (!is_block_type(weights)) return;
  const int group = quant_layout(weights).group;
  const std::int64_t stride = (count + 30) / 16 * 16;
  quant_ = {arena.make({count, inputs}, DType::kI8).data<std::int8_t>(), arena.make({inputs / 32, stride}, DType::kF32).data<float>(),
            arena.make({inputs / group, stride}, DType::kI32).data<std::int32_t>(),
            arena.make({inputs / group, stride}, DType::kF32).data<float>(), inputs, stride};
  constexpr std::int64_t kPiece = 16;  // rows: their scales share cache lines
  threads.parallel_for((count + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    for (std::int64_t i = piece * kPiece; i < count && i < (piece + 1) * kPiece; ++i) {
      kernels.quant->quantize(weights, rows[i], quant_.from(i));
    }
  });
}

void LeftRows::multiply(const MatrixView& m, std::int64_t row, int count, std::int64_t panel, std::int64_t panels,
                        float* const* out) const {
  if (is_block_type(m.dtype)) {
    kernels_.quant->product({m.dtype, m.weights, m.bias, m.outputs, panel, panels, quant_.from(row), out, count});
  } else {
    kernels_.panels({m.dtype, m.weights, m.scales, m.bias, m.inputs, m.outputs, panel, panels, rows_ + row, out, count});
  }
}

}  // namespace strata::cpu
