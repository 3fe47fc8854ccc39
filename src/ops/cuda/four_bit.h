// How matrices of 4-bit codes lie on the device, for kernels and for the code that packs them.
//
// A matrix is blocks of 16 rows by 128 inputs, those of the same rows one after the other (rows and inputs
// are filled up; of several experts each has whole blocks). A block: 1,024 bytes of codes, 128 of scales and,
// with minima, 128 of those. Codes are 64 pieces of 16 bytes, four for each row: piece 4 r + t holds for each
// j < 4 a word with inputs 32 j + 8 t .. + 7 of row r. That makes a warp's loads whole lines, and a lane's
// word the left operands of two tensor-core products (mma.cuh) whose right ones are eight neighbours of a row
// of x.
//
// kElemInt4: the weight is scale * (code - 8); kElemInt4Min: scale * code + minimum; f16 scales, and minima,
// at 8 r + 2 j. kElemFp4: factor of the row * scale * value, codes E2M1 and scales bytes at 8 r + 4 (k % 32 /
// 16) + j that mean 2^(s / 8 - 30) (1 + s % 8 / 8). Products of those with codes are exact in bf16.
#pragma once

#include <cstdint>

#include "ops/cuda/views.h"

namespace strata::cuda {

constexpr int kFourRows = 16, kFourInputs = 128;     // of a block
constexpr int kFourCodes = 1024, kFourScales = 128;  // bytes
constexpr int kFourGroup = 32;                       // inputs of a word of each of four pieces
constexpr int kFourScaleBias = 30;                   // of the bytes of kElemFp4, in their exponent of 5 bits

constexpr bool is_four_bit(int elem) { return elem >= kElemInt4; }
constexpr int four_block_bytes(int elem) { return kFourCodes + (elem == kElemInt4Min ? 2 : 1) * kFourScales; }

// The word of row r (below 16) and input k (below 128), counted from the block's first.
constexpr int four_word(int r, int k) { return (r * 4 + k % kFourGroup / 8) * 4 + k / kFourGroup; }
// The scale of the same: its byte from the block's first.
constexpr int four_scale(int elem, int r, int k) {
  return kFourCodes + r * 8 +
         (elem == kElemFp4 ? k % kFourGroup / 16 * 4 + k / kFourGroup : k / kFourGroup * 2);
}

// Code `i` (below 8) of a word: pairs 2p, 2p + 1 lie at the same place of the lower and upper half.
constexpr std::uint32_t place_int4(int i, int code) {
  return static_cast<std::uint32_t>(code) << (i / 2 * 4 + i % 2 * 16);
}
// E2M1 codes are cut so that a shift and a mask make each pair a pair of bf16, 2^126 too small (widen_fp4 of
// device/four_bit.cuh): sign, exponent and mantissa of pair 0 at bits 15, 8, 6; of 1 at 12, 5, 3; of 2 at 9,
// 2, 0; of 3 at 14, 10 and 13.
constexpr std::uint32_t place_fp4(int i, int code) {
  const auto sign = static_cast<std::uint32_t>(code >> 3 & 1), rest = static_cast<std::uint32_t>(code & 7);
  const int p = i / 2;
  const std::uint32_t half =
      p == 3 ? sign << 14 | (rest >> 1) << 10 | (rest & 1) << 13 : (sign << 15 | rest << 6) >> (3 * p);
  return half << (i % 2 * 16);
}
// The reverse: the four bits.
constexpr int fp4_at(int i, std::uint32_t word) {
  const std::uint32_t half = word >> (i % 2 * 16) & 0xffff;
  const int p = i / 2;
  if (p == 3) return static_cast<int>((half >> 14 & 1) << 3 | (half >> 10 & 3) << 1 | (half >> 13 & 1));
  return static_cast<int>((half << (3 * p) >> 15 & 1) << 3 | (half << (3 * p) >> 6 & 7));
}

}  // namespace strata::cuda
