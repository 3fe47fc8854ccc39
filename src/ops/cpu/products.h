// What linear and expert_linear share: the left rows in the form that a weight type wants, and one piece of a product.
#pragma once

#include <cstdint>

#include "ops/arena.h"
#include "ops/cpu/panel_product.h"
#include "ops/cpu/quant_product.h"
#include "ops/cpu/thread_pool.h"
#include "ops/weight.h"

namespace strata::cpu {

// The bodies that this backend runs.
struct ProductKernels {
  void (*panels)(const PanelProduct&) = panel_product;
  const QuantKernels* quant = &best_quant_kernels();
};

// One matrix of a weight: expert e's, or the only one.
struct MatrixView {
  DType dtype = DType::kF32;
  const std::byte* weights = nullptr;
  const float* scales = nullptr;
  const float* bias = nullptr;
  std::int64_t inputs = 0, outputs = 0;

  MatrixView(const Weight& w, const Tensor& bias, std::int64_t expert = 0);
  std::int64_t panels() const { return panels_of(outputs); }
};

// Rows of activations, prepared once for all pieces; lives in the arena's scratch.
class LeftRows {
 public:
  // rows[i] -> [K]; the array must outlive this.
  LeftRows(const ProductKernels& kernels, ThreadPool& threads, Arena& arena, DType weights, std::int64_t inputs,
           const float* const* rows, std::int64_t count);

  // Rows [row, row + count) by panels [panel, panel + panels) of the matrix; out[i] is the result of row + i. Any thread.
  void multiply(const MatrixView& matrix, std::int64_t row, int count, std::int64_t panel, std::int64_t panels, float* const* out) const;

 private:
  const ProductKernels& kernels_;
  const float* const* rows_;
  QuantRows quant_;
};

}  // namespace strata::cpu
