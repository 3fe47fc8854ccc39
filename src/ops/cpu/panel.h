// The packed layout of a weight matrix: panels of 16 outputs, the lanes of a vector; and how to read one element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace strata::cpu {

inline constexpr int kPanelOutputs = 16;  // one AVX-512 vector, two of AVX2, four of NEON
inline constexpr int kScaleBlock = 128;   // rows and columns that share a scale in FP8 checkpoints

// Panel p holds outputs [16p, 16p + 16), zeros beyond N. Inputs are padded with one zero column to an even number:
//   f32, f16, f8:  [K even][16]
//   bf16:          [K even / 2][16][2], so that a 32-bit lane holds two inputs: a shift or a mask widens it
// An f8 matrix has scales f32 [panel][ceil(K / 128)][16].
inline std::int64_t panels_of(std::int64_t outputs) { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
inline std::int64_t padded_inputs(std::int64_t inputs) { return (inputs + 1) / 2 * 2; }
inline std::int64_t scale_blocks(std::int64_t inputs) { return (inputs + kScaleBlock - 1) / kScaleBlock; }

inline std::size_t panel_bytes(DType dtype, std::int64_t inputs) {
  return bytes_of(dtype, padded_inputs(inputs) * kPanelOutputs);
}

// Element number of (input k, lane) within a panel.
inline std::int64_t panel_index(DType dtype, std::int64_t k, int lane) {
  if (dtype == DType::kBF16) return (k / 2 * kPanelOutputs + lane) * 2 + k % 2;
  return k * kPanelOutputs + lane;
}

// The weight of (input k, lane); scales are the panel's own.
inline float panel_weight(DType dtype, const std::byte* panel, const float* scales, std::int64_t k, int lane) {
  const std::int64_t i = panel_index(dtype, k, lane);
  if (dtype == DType::kF8E4M3) {
    return f8e4m3_to_float(static_cast<std::uint8_t>(panel[i])) * scales[k / kScaleBlock * kPanelOutputs + lane];
  }
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, panel + i * 4, 4);
    return x;
  }
  std::uint16_t bits;
  std::memcpy(&bits, panel + i * 2, 2);
  return dtype == DType::kBF16 ? to_float(BFloat16{bits}) : half_to_float(bits);
}

}  // namespace strata::cpu
