// The packed layout of block-quantised weights: panels of 16 outputs in units of 32 or 256 inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/panel.h"
#include "tensor/quant.h"

namespace strata::cpu {

// A panel is a row of units, one after the other: [scales][codes of 32 inputs][codes of the next 32]...
// Codes are split by bits into planes of 64-byte vectors; byte 4 * lane + i of the vector of quad q belongs to input 4q + i of its 32:
//   8 bits   8 vectors, signed
//   4 bits   4 vectors: quad q in the low nibbles of vector q, quad q + 4 in the high ones
//   2 bits   2 vectors: quad q in bits 2(q % 4) of vector q / 4
//   1 bit    1 vector: quad q in bit q
// so that a vector feeds 16 lanes of a dot product of four bytes, and 5 bits are the 4-bit plane and then the 1-bit plane.
// Scales of a unit of 32: 16 f16 (or 16 E8M0 bytes), then 16 f16 of offsets. Of a unit of 256: 16 f16 d, 16 f16 dmin, and for each
// group 16 signed bytes, then for each group 16 bytes of minima: scale = d * byte, offset = -(dmin * byte).
struct QuantLayout {
  int low = 0, high = 0;   // bits of the two planes; their sum is the width of a code
  bool table = false;      // the code is an index into 16 values
  int bias = 0;            // stored code - bias = code, where there is no table and no sign
  int group = 32, unit = 32;
  bool offset = false;     // has offsets
  bool e8m0 = false;

  constexpr int groups() const { return unit / group; }
  constexpr int code_bytes() const { return (low + high) * 64; }  // of 32 inputs
  constexpr int scale_bytes() const {
    if (unit == 32) return (e8m0 ? 16 : 32) + (offset ? 32 : 0);
    return (32 + 16 * groups()) * (offset ? 2 : 1);
  }
  constexpr int unit_bytes() const { return scale_bytes() + code_bytes() * unit / 32; }
};

constexpr QuantLayout quant_layout(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0: return {.low = 8};
    case DType::kQ4_0: return {.low = 4, .bias = 8};
    case DType::kQ4_1: return {.low = 4, .offset = true};
    case DType::kQ5_0: return {.low = 4, .high = 1, .bias = 16};
    case DType::kQ5_1: return {.low = 4, .high = 1, .offset = true};
    case DType::kIQ4_NL: return {.low = 4, .table = true};
    case DType::kMXFP4: return {.low = 4, .table = true, .e8m0 = true};
    case DType::kQ2_K: return {.low = 2, .group = 16, .unit = 256, .offset = true};
    case DType::kQ3_K: return {.low = 2, .high = 1, .bias = 4, .group = 16, .unit = 256};
    case DType::kQ4_K: return {.low = 4, .unit = 256, .offset = true};
    case DType::kQ5_K: return {.low = 4, .high = 1, .unit = 256, .offset = true};
    case DType::kQ6_K: return {.low = 4, .high = 2, .bias = 32, .group = 16, .unit = 256};
    case DType::kIQ4_XS: return {.low = 4, .table = true, .unit = 256};
    default: return {};
  }
}

// CASE(kQ4_0) and so on, for the switches that turn a type into a template argument.
#define STRATA_EACH_QUANT(CASE)                                                                                       \
  CASE(kQ4_0) CASE(kQ4_1) CASE(kQ5_0) CASE(kQ5_1) CASE(kQ8_0) CASE(kQ2_K) CASE(kQ3_K) CASE(kQ4_K) CASE(kQ5_K) CASE(kQ6_K) \
  CASE(kIQ4_NL) CASE(kIQ4_XS) CASE(kMXFP4)

inline const std::array<std::int8_t, 16>& quant_table(DType dtype) {
  return dtype == DType::kMXFP4 ? kMxfp4Values : kIq4Values;
}

inline std::size_t quant_panel_bytes(DType dtype, std::int64_t inputs) {
  const QuantLayout layout = quant_layout(dtype);
  return static_cast<std::size_t>(inputs / layout.unit) * static_cast<std::size_t>(layout.unit_bytes());
}

// Bytes of a panel of any type.
inline std::size_t packed_panel_bytes(DType dtype, std::int64_t inputs) {
  return is_block_type(dtype) ? quant_panel_bytes(dtype, inputs) : panel_bytes(dtype, inputs);
}

inline float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return half_to_float(bits);
}

// Code, and scale and offset, of input k of a lane, and the weight they make: what the scalar bodies and embed read.
int quant_code(DType dtype, const std::byte* panel, std::int64_t k, int lane);
struct QuantScale {
  float scale, offset;
};
QuantScale quant_scale(DType dtype, const std::byte* panel, std::int64_t k, int lane);
inline float quant_weight(DType dtype, const std::byte* panel, std::int64_t k, int lane) {
  const QuantScale s = quant_scale(dtype, panel, k, lane);
  return s.scale * static_cast<float>(quant_code(dtype, panel, k, lane)) + s.offset;
}

}  // namespace strata::cpu
