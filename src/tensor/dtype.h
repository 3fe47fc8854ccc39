// Element types of tensors and weights, and what a block of each weighs in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata {

// Plain types hold one element in each unit; the block types are GGUF's (ggml-common.h of ggml describes their bits),
// 32 or 256 elements in each block, and kNVFP4 (quant.h), 16 in each. kF8E4M3 is OCP FP8 (4 exponent, 3 mantissa bits, no
// infinities).
enum class DType : std::uint8_t {
  kF32, kF16, kBF16, kF64, kF8E4M3, kI8, kU8, kI16, kI32, kI64, kBool,
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS, kMXFP4, kNVFP4,
};

struct DTypeInfo {
  std::string_view name;      // "bf16", "q4_k"
  int block_elements;         // 1 for plain types
  int block_bytes;
};

const DTypeInfo& info(DType dtype);
inline std::string_view name(DType dtype) { return info(dtype).name; }

// Bytes of `elements` elements. A row of a block type must be whole blocks: a broken invariant otherwise.
std::size_t bytes_of(DType dtype, std::int64_t elements);

// Brain float: the upper half of a float32.
struct BFloat16 {
  std::uint16_t bits;
};

float to_float(BFloat16 x);
BFloat16 to_bfloat16(float x);       // rounds to nearest, ties to even; NaN stays NaN
float half_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float x);
float f8e4m3_to_float(std::uint8_t bits);
std::uint8_t float_to_f8e4m3(float x);  // rounds to nearest even, saturates at +-448

}  // namespace strata
