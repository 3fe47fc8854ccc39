#include "tensor/quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace strata {

const std::array<std::int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const std::array<std::int8_t, 16> kMxfp4Values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

namespace {

int u8(const std::byte* p, int i) { return static_cast<int>(p[i]); }

float half_at(const std::byte* p, int offset) {
  std::uint16_t bits;
  std::memcpy(&bits, p + offset, 2);
  return half_to_float(bits);
}

std::int8_t i8(int x) { return static_cast<std::int8_t>(x); }

// ---- blocks of 32: bytes of nibbles hold elements i (low) and i + 16 (high) ----

template <typename Map>
void nibbles32(const std::byte* qs, std::int8_t* code, Map map) {
  for (int i = 0; i < 16; ++i) {
    code[i] = i8(map(u8(qs, i) & 15, i));
    code[i + 16] = i8(map(u8(qs, i) >> 4, i + 16));
  }
}

void unpack_32(DType dtype, const std::byte* b, BlockCodes& c) {
  std::int8_t* code = c.code.data();
  c.scale[0] = dtype == DType::kMXFP4 ? std::ldexp(1.0F, u8(b, 0) - 128) : half_at(b, 0);
  c.offset[0] = quant_has_offset(dtype) ? half_at(b, 2) : 0.0F;
  const auto fifth = [&](int at, int i) { return ((u8(b, at + i / 8) >> (i % 8)) & 1) << 4; };
  switch (dtype) {
    case DType::kQ8_0: std::memcpy(code, b + 2, 32); return;
    case DType::kQ4_0: nibbles32(b + 2, code, [](int q, int) { return q - 8; }); return;
    case DType::kQ4_1: nibbles32(b + 4, code, [](int q, int) { return q; }); return;
    case DType::kQ5_0: nibbles32(b + 6, code, [&](int q, int i) { return (q | fifth(2, i)) - 16; }); return;
    case DType::kQ5_1: nibbles32(b + 8, code, [&](int q, int i) { return q | fifth(4, i); }); return;
    case DType::kIQ4_NL: nibbles32(b + 2, code, [](int q, int) { return kIq4Values[static_cast<std::size_t>(q)]; }); return;
    default: nibbles32(b + 1, code, [](int q, int) { return kMxfp4Values[static_cast<std::size_t>(q)]; }); return;
  }
}

// ---- NVFP4 ----

void unpack_nvfp4(const std::byte* b, BlockCodes& c) {
  c.scale[0] = f8e4m3_to_float(static_cast<std::uint8_t>(b[8])) / 2;
  c.offset[0] = 0;
  for (int i = 0; i < 16; ++i) {
    c.code[static_cast<std::size_t>(i)] = kMxfp4Values[static_cast<std::size_t>(u8(b, i / 2) >> (i % 2 * 4) & 15)];
  }
}

// ---- super-blocks of 256 ----

// [scales 16 x (4-bit scale, 4-bit min)][64 bytes of 2-bit codes][d][dmin]
void unpack_q2_k(const std::byte* b, BlockCodes& c) {
  const float d = half_at(b, 80), dmin = half_at(b, 82);
  for (int g = 0; g < 16; ++g) {
    c.scale[static_cast<std::size_t>(g)] = d * static_cast<float>(u8(b, g) & 15);
    c.offset[static_cast<std::size_t>(g)] = -(dmin * static_cast<float>(u8(b, g) >> 4));
  }
  for (int i = 0; i < 256; ++i) {
    c.code[static_cast<std::size_t>(i)] = i8((u8(b, 16 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2)) & 3);
  }
}

// [32 bytes of high bits][64 bytes of 2-bit codes][16 scales of 6 bits in 12 bytes][d]; a clear high bit subtracts 4.
void unpack_q3_k(const std::byte* b, BlockCodes& c) {
  const float d = half_at(b, 108);
  c.offset.fill(0);
  for (int g = 0; g < 16; ++g) {
    const int low = (u8(b, 96 + g % 8) >> (g / 8 * 4)) & 15, high = (u8(b, 104 + g % 4) >> (g / 4 * 2)) & 3;
    c.scale[static_cast<std::size_t>(g)] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const int low = (u8(b, 32 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2)) & 3, high = (u8(b, i % 32) >> (i / 32)) & 1;
    c.code[static_cast<std::size_t>(i)] = i8(low - (high != 0 ? 0 : 4));
  }
}

// 6-bit scales and minima of the eight groups of Q4_K and Q5_K, in 12 bytes.
void scales_k4(const std::byte* s, float d, float dmin, BlockCodes& c) {
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? u8(s, g) & 63 : (u8(s, g + 4) & 15) | (u8(s, g - 4) >> 6) << 4;
    const int min = g < 4 ? u8(s, g + 4) & 63 : (u8(s, g + 4) >> 4) | (u8(s, g) >> 6) << 4;
    c.scale[static_cast<std::size_t>(g)] = d * static_cast<float>(scale);
    c.offset[static_cast<std::size_t>(g)] = -(dmin * static_cast<float>(min));
  }
}

int nibble64(const std::byte* qs, int i) { return (u8(qs, i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4)) & 15; }

// [d][dmin][12 bytes of scales][128 bytes of nibbles: 32 low, the same 32 high, and so on]
void unpack_q4_k(const std::byte* b, BlockCodes& c) {
  scales_k4(b + 4, half_at(b, 0), half_at(b, 2), c);
  for (int i = 0; i < 256; ++i) c.code[static_cast<std::size_t>(i)] = i8(nibble64(b + 16, i));
}

// As Q4_K with 32 bytes of fifth bits before the nibbles; bit i / 32 of byte i % 32.
void unpack_q5_k(const std::byte* b, BlockCodes& c) {
  scales_k4(b + 4, half_at(b, 0), half_at(b, 2), c);
  for (int i = 0; i < 256; ++i) {
    c.code[static_cast<std::size_t>(i)] = i8(nibble64(b + 48, i) | ((u8(b, 16 + i % 32) >> (i / 32)) & 1) << 4);
  }
}

// [128 bytes of low nibbles][64 bytes of high pairs][16 scales of 8 bits][d]
void unpack_q6_k(const std::byte* b, BlockCodes& c) {
  const float d = half_at(b, 208);
  c.offset.fill(0);
  for (int g = 0; g < 16; ++g) {
    c.scale[static_cast<std::size_t>(g)] = d * static_cast<float>(static_cast<std::int8_t>(b[192 + g]));
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, in = i % 128;
    const int low = (u8(b, half * 64 + in % 64) >> (in / 64 * 4)) & 15, high = (u8(b, 128 + half * 32 + in % 32) >> (in / 32 * 2)) & 3;
    c.code[static_cast<std::size_t>(i)] = i8((low | high << 4) - 32);
  }
}

// [d][16 bits of high scale pairs][4 bytes of low scale nibbles][8 x 16 bytes of nibbles]
void unpack_iq4_xs(const std::byte* b, BlockCodes& c) {
  const float d = half_at(b, 0);
  c.offset.fill(0);
  for (int g = 0; g < 8; ++g) {
    const int low = (u8(b, 4 + g / 2) >> (g % 2 * 4)) & 15, high = ((u8(b, 2) | u8(b, 3) << 8) >> (2 * g)) & 3;
    c.scale[static_cast<std::size_t>(g)] = d * static_cast<float>((low | high << 4) - 32);
    nibbles32(b + 8 + g * 16, c.code.data() + g * 32, [](int q, int) { return kIq4Values[static_cast<std::size_t>(q)]; });
  }
}

}  // namespace

int quant_group(DType dtype) {
  return dtype == DType::kQ2_K || dtype == DType::kQ3_K || dtype == DType::kQ6_K || dtype == DType::kNVFP4 ? 16 : 32;
}

bool quant_has_offset(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2_K || dtype == DType::kQ4_K || dtype == DType::kQ5_K;
}

void unpack_block(DType dtype, const std::byte* block, BlockCodes& codes) {
  switch (dtype) {
    case DType::kQ2_K: return unpack_q2_k(block, codes);
    case DType::kQ3_K: return unpack_q3_k(block, codes);
    case DType::kQ4_K: return unpack_q4_k(block, codes);
    case DType::kQ5_K: return unpack_q5_k(block, codes);
    case DType::kQ6_K: return unpack_q6_k(block, codes);
    case DType::kIQ4_XS: return unpack_iq4_xs(block, codes);
    case DType::kNVFP4: return unpack_nvfp4(block, codes);
    default: break;
  }
  STRATA_CHECK(info(dtype).block_elements == 32, "{} is no block type", name(dtype));
  unpack_32(dtype, block, codes);
}

void dequantize_row(DType dtype, const std::byte* blocks, std::int64_t count, float* to) {
  const int elements = info(dtype).block_elements, group = quant_group(dtype);
  STRATA_CHECK(count % elements == 0, "{} elements are not whole {} blocks", count, name(dtype));
  BlockCodes c;
  for (; count > 0; count -= elements, blocks += info(dtype).block_bytes, to += elements) {
    unpack_block(dtype, blocks, c);
    for (int i = 0; i < elements; ++i) {
      const auto g = static_cast<std::size_t>(i / group);
      to[i] = c.scale[g] * static_cast<float>(c.code[static_cast<std::size_t>(i)]) + c.offset[g];
    }
  }
}

}  // namespace strata
