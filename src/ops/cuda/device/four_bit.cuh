// Reading 4-bit codes (four_bit.h): as pairs of bf16 for the tensor cores, and one by one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/cuda/four_bit.h"

namespace strata::cuda {

__device__ __forceinline__ std::uint32_t multiply_pair(std::uint32_t a, std::uint32_t b) {
  const __nv_bfloat162 x =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const std::uint32_t&>(x);
}

// A word of integers less `Bias` as four pairs: each code becomes the low bits of a bf16 of 128 to 143.
template <int Bias>
__device__ __forceinline__ void widen_int4(std::uint32_t word, std::uint32_t (&pairs)[4]) {
  constexpr std::uint32_t k128 = 0x43004300U, kLess = k128 | static_cast<std::uint32_t>(Bias) << 16 | Bias;
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const std::uint32_t bits = (word >> (4 * p) & 0x000f000fU) | k128;
    const __nv_bfloat162 x = __hsub2(reinterpret_cast<const __nv_bfloat162&>(bits),
                                     reinterpret_cast<const __nv_bfloat162&>(kLess));
    pairs[p] = reinterpret_cast<const std::uint32_t&>(x);
  }
}

// Byte j of four scales of kElemFp4 as a pair of bf16, times the 2^126 that widen_fp4's bits lack.
__device__ __forceinline__ std::uint32_t fp4_scale(std::uint32_t scales, int j) {
  constexpr std::uint32_t kExponent = (126 + 127 - kFourScaleBias) << 7;
  return (__byte_perm(scales, 0, 0x4040U + 0x0101U * static_cast<unsigned>(j)) << 4) +
         (kExponent | kExponent << 16);
}

// A word of E2M1 codes times a pair of fp4_scale, exactly.
__device__ __forceinline__ void widen_fp4(std::uint32_t word, std::uint32_t scale,
                                          std::uint32_t (&pairs)[4]) {
#pragma unroll
  for (int p = 0; p < 3; ++p)
    pairs[p] = multiply_pair(__funnelshift_r(word, word, fp4_turn(p)) & kFp4Pair, scale);
  pairs[3] = multiply_pair((word & kFp4Rest) | (word << 8 & kFp4Exponent), scale);
}

// Weight (row, k), rows of experts one after the other. For what is not on the way of speed.
__device__ __forceinline__ float four_bit_weight(const Rows& w, const float* factors, std::int64_t row,
                                                 std::int64_t k) {
  const auto* block = static_cast<const std::uint8_t*>(w.data) + row / kFourRows * w.stride +
                      k / kFourInputs * four_block_bytes(w.elem);
  const int r = static_cast<int>(row % kFourRows), in = static_cast<int>(k % kFourInputs), i = in % 8;
  const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(block)[four_word(r, in)];
  const std::uint8_t* scale = block + four_scale(w.elem, r, in);
  if (w.elem == kElemFp4) {
    constexpr float kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    const int code = fp4_at(i, word);
    const float value =
        ldexpf(kDoubled[code & 7] * static_cast<float>(8 + *scale % 8), *scale / 8 - kFourScaleBias - 4);
    return factors[row] * (code > 7 ? -value : value);
  }
  const int code = static_cast<int>(word >> (i / 2 * 4 + i % 2 * 16) & 15);
  const float f = __half2float(*reinterpret_cast<const __half*>(scale));
  if (w.elem == kElemInt4) return f * static_cast<float>(code - 8);
  return f * static_cast<float>(code) + __half2float(*reinterpret_cast<const __half*>(scale + kFourScales));
}

}  // namespace strata::cuda
