#include "ops/cuda/four_bit_pack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/cuda/op_checks.h"
#include "tensor/convert.h"

namespace strata::cuda {
namespace {

constexpr int kExponents = 32;    // that a scale's byte can tell apart
constexpr int kNoExponent = 255;  // E8M0's only number that is none

// One row as stored.
struct Row {
  std::vector<std::byte> blocks;
  DType type;

  Row(const cpu::MatrixRows& rows, DType as, std::int64_t row) : blocks(bytes_of(as, rows.inputs())), type(as) {
    if (rows.stored_as(as)) {
      rows.read_raw(row, blocks.data());
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(rows.inputs()));
    rows.read_f32(row, values.data());
    row_from_f32(as, values.data(), rows.inputs(), blocks.data());
  }
  int byte(std::int64_t block, int at) const {
    return static_cast<int>(blocks[static_cast<std::size_t>(block * info(type).block_bytes + at)]);
  }
  // The code of input k, as stored.
  int code(std::int64_t k) const {
    if (type == DType::kNVFP4) return byte(k / 16, static_cast<int>(k % 16 / 2)) >> (k % 2 * 4) & 15;
    const int head = type == DType::kQ4_0 ? 2 : type == DType::kQ4_1 ? 4 : 1;
    return byte(k / 32, head + static_cast<int>(k % 16)) >> (k % 32 / 16 * 4) & 15;
  }
  bool zeros(std::int64_t k0, int count) const {
    for (std::int64_t k = k0; k < k0 + count; ++k) {
      if ((code(k) & 7) != 0) return false;
    }
    return true;
  }
};

// Least and greatest exponent (as stored) of a row of MXFP4 among groups that are not zeros.
struct Exponents {
  int least = kNoExponent, greatest = 0;
  Exponents(const Row& row, std::int64_t inputs) {
    for (std::int64_t k = 0; k < inputs; k += 32) {
      if (row.zeros(k, 32)) continue;
      least = std::min(least, row.byte(k / 32, 0));
      greatest = std::max(greatest, row.byte(k / 32, 0));
    }
  }
};

// Of a group of 16 inputs of a kElemFp4 row.
struct Fp4Scale {
  int byte = 0;       // the scale
  bool zero = false;  // all codes are zero
  int turn = 0;       // bits of codes to turn: their signs where the scale is negative
};

bool is_number(int e4m3) { return (e4m3 & 0x7f) != 0x7f; }

// E4M3 as a scale's byte, whose exponent is 8 more and has a bit more, so that all are normal.
Fp4Scale scale_of_e4m3(int bits) {
  const int turn = bits >> 7 << 3;
  bits &= 0x7f;
  if (bits == 0) return {.zero = true};
  int exponent = bits >> 3, mantissa = bits & 7;
  if (exponent == 0) {  // mantissa * 2^-9
    exponent = 1;
    for (; mantissa < 8; mantissa *= 2) --exponent;
    mantissa -= 8;
  }
  return {.byte = (exponent + 8) << 3 | mantissa, .turn = turn};
}
constexpr int kE4m3Factor =
    kFourScaleBias - 15;  // an exponent e of E4M3 means 2^(e - 7), as the byte's e + 8 means 2^(e - 22)

// Words by their four pairs of codes, a pair a byte.
using Pairs = std::array<std::array<std::uint32_t, 256>, 4>;
template <typename Place>
Pairs pairs_of(Place place) {
  Pairs all{};
  for (int p = 0; p < 4; ++p) {
    for (int byte = 0; byte < 256; ++byte)
      all[static_cast<std::size_t>(p)][static_cast<std::size_t>(byte)] =
          place(2 * p, byte & 15) | place(2 * p + 1, byte >> 4);
  }
  return all;
}

// Inputs k .. k + 7 of a row, k a multiple of 8, codes with the bits `turn` turned.
void set_word(const Pairs& pairs, const Row& row, std::int64_t k, int turn, int r, std::byte* block) {
  std::uint32_t word = 0;
  for (std::size_t p = 0; p < 4; ++p) {
    const auto at = k + 2 * static_cast<std::int64_t>(p);
    word |= pairs[p][static_cast<std::size_t>((row.code(at) | row.code(at + 1) << 4) ^ (turn | turn << 4))];
  }
  std::memcpy(block + four_word(r, static_cast<int>(k % kFourInputs)) * 4, &word, 4);
}

void pack_ints(const Row& row, int elem, int r, std::int64_t inputs, std::byte* blocks) {
  static const Pairs pairs = pairs_of(place_int4);
  const int bytes = four_block_bytes(elem);
  for (std::int64_t k = 0; k < inputs; k += 8) {
    std::byte* block = blocks + k / kFourInputs * bytes;
    set_word(pairs, row, k, 0, r, block);
    if (k % kFourGroup != 0) continue;
    const int in = static_cast<int>(k % kFourInputs);
    const std::byte* stored = row.blocks.data() + bytes_of(row.type, k);
    std::memcpy(block + four_scale(elem, r, in), stored, 2);
    if (elem == kElemInt4Min) std::memcpy(block + kFourScales + four_scale(elem, r, in), stored + 2, 2);
  }
}

float pack_fp4(const Row& row, int r, std::int64_t inputs, float factor, std::byte* blocks) {
  static const Pairs pairs = pairs_of(place_fp4);
  constexpr int kBytes = four_block_bytes(kElemFp4);
  const bool mx = row.type == DType::kMXFP4;
  const int least = mx ? Exponents(row, inputs).least : 0;
  if (least == kNoExponent) return 0;
  for (std::int64_t k0 = 0; k0 < inputs; k0 += 16) {
    Fp4Scale s;
    if (!mx) {
      s = scale_of_e4m3(row.byte(k0 / 16, 8));
    } else if (row.zeros(k0, 16)) {
      s.zero = true;
    } else {
      s.byte = (row.byte(k0 / 32, 0) - least) << 3;
    }
    std::byte* block = blocks + k0 / kFourInputs * kBytes;
    block[four_scale(kElemFp4, r, static_cast<int>(k0 % kFourInputs))] = static_cast<std::byte>(s.byte);
    if (s.zero) continue;
    for (std::int64_t k = k0; k < k0 + 16; k += 8) set_word(pairs, row, k, s.turn, r, block);
  }
  return std::ldexp(factor, mx ? least - 127 + kFourScaleBias : kE4m3Factor);
}

}  // namespace

bool is_four_bit_type(DType type) {
  return type == DType::kQ4_0 || type == DType::kQ4_1 || type == DType::kMXFP4 || type == DType::kNVFP4;
}

bool fits_four_bit(const cpu::MatrixRows& rows, DType type, std::int64_t experts, bool values) {
  if (experts > 0 && rows.rows() / experts % kFourRows != 0) return false;
  if (!values || (type != DType::kMXFP4 && type != DType::kNVFP4)) return true;
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    const Row row(rows, type, r);
    if (type == DType::kNVFP4) {
      for (std::int64_t b = 0; b < rows.inputs() / 16; ++b) {
        if (!is_number(row.byte(b, 8))) return false;
      }
      continue;
    }
    const Exponents e(row, rows.inputs());
    if (e.greatest - e.least >= kExponents || e.greatest == kNoExponent) return false;
  }
  return true;
}

void pack_four_bit(const cpu::MatrixRows& rows, DType type, std::int64_t begin, std::byte* blocks,
                   float* factors) {
  const int elem = elem_of(type);
  const std::int64_t inputs = rows.inputs(), count = (inputs + kFourInputs - 1) / kFourInputs;
  std::memset(blocks, 0, static_cast<std::size_t>(count * four_block_bytes(elem)));
  for (int r = 0; r < kFourRows; ++r) {
    if (factors != nullptr) factors[r] = 0;
    if (begin + r >= rows.rows()) continue;
    const Row row(rows, type, begin + r);
    if (elem == kElemFp4) {
      factors[r] = pack_fp4(row, r, inputs, rows.stored_as(type) ? rows.scale(begin + r, 0) : 1, blocks);
    } else {
      pack_ints(row, elem, r, inputs, blocks);
    }
  }
}

}  // namespace strata::cuda
