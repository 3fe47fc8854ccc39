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

#include <bit>
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
// E2M1 codes are cut so that few instructions make each pair a pair of bf16 (sign at bit 15, exponent and
// mantissa at 8 to 6 of each half), 2^126 too small: pairs 0, 1 and 2 lie rotated left by fp4_turn, which
// leaves bits 15, 7, 6 and 0 to pair 3, whose upper bit of the exponent is at 0.
constexpr int fp4_turn(int p) { return p == 0 ? 2 : 6 * p; }
constexpr std::uint32_t kFp4Pair = 0x81c081c0U, kFp4Rest = 0x80c080c0U, kFp4Exponent = 0x01000100U;

constexpr std::uint32_t place_fp4(int i, int code) {
  const std::uint32_t bits = static_cast<std::uint32_t>((code & 8) << 12 | (code & 7) << 6) << (i % 2 * 16);
  if (i / 2 < 3) return std::rotl(bits, fp4_turn(i / 2));
  return (bits & kFp4Rest) | (bits & kFp4Exponent) >> 8;
}
// The reverse: the four bits.
constexpr int fp4_at(int i, std::uint32_t word) {
  const std::uint32_t bits =
      i / 2 < 3 ? std::rotr(word, fp4_turn(i / 2)) : (word & kFp4Rest) | (word << 8 & kFp4Exponent);
  const std::uint32_t half = bits >> (i % 2 * 16);
  return static_cast<int>((half >> 12 & 8) | (half >> 6 & 7));
}

}  // namespace strata::cuda
