// Products of rows with block-quantised panels: rows become integers once, dot products are exact integers, and scales are
// applied in f32 in the order of the groups. So every instruction set and every tiling gives the same bits.
//
// For input groups g (32, or 16 where the type has scales of 16), in ascending order:
//   dot = sum of code_w * code_x, exact;  sum = fma(dot, scale_w * scale_x, sum);  sum = fma(offset_w, shift_x, sum) if it has offsets
// with scale_x = max |x| / 127 over 32 inputs, code_x = x / scale_x rounded to even, shift_x = scale_x * sum of code_x.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/quant_layout.h"

namespace strata::cpu {

// Rows of activations as integers. What belongs to a group lies side by side for all rows, `stride` apart for the next group;
// bodies may read (not use) up to 15 rows past the last.
struct QuantRows {
  std::int8_t* codes = nullptr;    // [rows, K]
  float* scale = nullptr;          // [K / 32, stride]
  std::int32_t* start = nullptr;   // [K / group, stride]: what an integer sum starts from, -bias * sum of code_x
  float* shift = nullptr;          // [K / group, stride]
  std::int64_t inputs = 0;         // K
  std::int64_t stride = 0;

  QuantRows from(std::int64_t row) const { return {codes + row * inputs, scale + row, start + row, shift + row, inputs, stride}; }
};

struct QuantProduct {
  DType dtype = DType::kQ8_0;
  const std::byte* weights = nullptr;  // panel 0
  const float* bias = nullptr;         // [N] or null
  std::int64_t outputs = 0;            // N
  std::int64_t first_panel = 0, panels = 0;
  QuantRows x;                         // row 0 of the product
  float* const* out = nullptr;         // [rows] -> [N]
  int rows = 0;
};

// The bodies of one instruction set. A row quantised by one set is used with that set only (`start` differs).
struct QuantKernels {
  const char* name;
  void (*quantize)(DType weights, const float* x, const QuantRows& to);  // one row
  void (*product)(const QuantProduct& product);
};

extern const QuantKernels kQuantScalar;
#if defined(__x86_64__)
extern const QuantKernels kQuantAvx2, kQuantAvxVnni, kQuantAvx512, kQuantAmx;
#elif defined(__aarch64__)
extern const QuantKernels kQuantNeon;
#endif

// The best of this machine.
const QuantKernels& best_quant_kernels();

}  // namespace strata::cpu
