// panel_product: the products of a few rows with some panels of a matrix, the heart of linear and expert_linear.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/panel.h"
#include "tensor/dtype.h"

namespace strata::cpu {

inline constexpr int kGroupPanels = 4;   // panels that one piece of work takes together: 64 outputs
inline constexpr int kBlockRows = 96;    // rows of one piece: their sums (24 KiB) and a block of weights fit in L2

// out[r][n] = sum over k of x[r][k] w[n][k], then + bias[n]. Every sum is one chain of fused multiply-adds in the order of k
// from 0, whatever the number of rows, the vector width or the panel, so its bits depend on the row and the matrix alone.
struct PanelProduct {
  DType dtype = DType::kF32;
  const std::byte* weights = nullptr;  // panel 0
  const float* scales = nullptr;       // of panel 0 (f8), else null
  const float* bias = nullptr;         // [N] or null
  std::int64_t inputs = 0;             // K
  std::int64_t outputs = 0;            // N
  std::int64_t first_panel = 0, panels = 0;  // the panels to do, at most kGroupPanels when rows > 1
  const float* const* x = nullptr;     // [rows] -> [K]
  float* const* out = nullptr;         // [rows] -> [N]
  int rows = 0;                        // at most kBlockRows
};

void panel_product(const PanelProduct& product);
void panel_product_scalar(const PanelProduct& product);

}  // namespace strata::cpu
