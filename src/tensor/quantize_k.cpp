// Quantises the super-blocks of 256: a scale (and minimum) for each group by search, then those as small integers of one f16.
#include "tensor/quantize_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/quant.h"
#include "tensor/quant_fit.h"

namespace strata {
namespace {

void put_half(float x, std::byte* to) {
  const std::uint16_t bits = float_to_half(x);
  std::memcpy(to, &bits, 2);
}

float as_half(float x) { return half_to_float(float_to_half(x)); }
float inverse_of(float x) { return x == 0 ? 0.0F : 1 / x; }
void set_bits(std::byte& b, int bits) { b |= static_cast<std::byte>(bits); }

// Integer scales (and minima) of the groups and the codes of all elements.
struct SuperBlock {
  float d = 0, dmin = 0;
  int scale[16] = {}, min[16] = {};
  int code[256] = {};
};

// Q2_K, Q4_K, Q5_K: codes in [0, high], scales and minima in [0, levels].
SuperBlock affine_block(const float* x, int group, int high, int levels) {
  SuperBlock s;
  Affine fits[16];
  float top_scale = 0, top_min = 0;
  const int groups = 256 / group;
  for (int g = 0; g < groups; ++g) {
    fits[g] = fit_affine(x + g * group, group, high);
    top_scale = std::max(top_scale, fits[g].scale);
    top_min = std::max(top_min, fits[g].min);
  }
  s.d = as_half(top_scale / static_cast<float>(levels));
  s.dmin = as_half(top_min / static_cast<float>(levels));
  for (int g = 0; g < groups; ++g) {
    s.scale[g] = nearest_code(fits[g].scale, inverse_of(s.d), 0, levels);
    s.min[g] = nearest_code(fits[g].min, inverse_of(s.dmin), 0, levels);
    const float scale = s.d * static_cast<float>(s.scale[g]), min = s.dmin * static_cast<float>(s.min[g]);
    for (int i = g * group; i < (g + 1) * group; ++i) s.code[i] = nearest_code(x[i] + min, inverse_of(scale), 0, high);
  }
  return s;
}

// Q3_K, Q6_K: codes in [-half, half), scales in [-levels, levels).
SuperBlock symmetric_block(const float* x, int half, int levels) {
  SuperBlock s;
  float fits[16];
  float peak = 0;
  for (int g = 0; g < 16; ++g) {
    fits[g] = fit_symmetric(x + g * 16, 16, -half, half - 1);
    peak = std::abs(fits[g]) > std::abs(peak) ? fits[g] : peak;
  }
  s.d = as_half(-peak / static_cast<float>(levels));
  for (int g = 0; g < 16; ++g) {
    s.scale[g] = nearest_code(fits[g], inverse_of(s.d), -levels, levels - 1);
    const float scale = s.d * static_cast<float>(s.scale[g]);
    for (int i = g * 16; i < g * 16 + 16; ++i) s.code[i] = nearest_code(x[i], inverse_of(scale), -half, half - 1);
  }
  return s;
}

void write_q2_k(const SuperBlock& s, std::byte* b) {
  for (int g = 0; g < 16; ++g) b[g] = static_cast<std::byte>(s.scale[g] | s.min[g] << 4);
  for (int i = 0; i < 256; ++i) set_bits(b[16 + i / 128 * 32 + i % 32], s.code[i] << (i % 128 / 32 * 2));
  put_half(s.d, b + 80);
  put_half(s.dmin, b + 82);
}

void write_q3_k(const SuperBlock& s, std::byte* b) {
  for (int i = 0; i < 256; ++i) {
    const int q = s.code[i] + 4;
    set_bits(b[i % 32], (q >> 2) << (i / 32));
    set_bits(b[32 + i / 128 * 32 + i % 32], (q & 3) << (i % 128 / 32 * 2));
  }
  for (int g = 0; g < 16; ++g) {
    const int q = s.scale[g] + 32;
    set_bits(b[96 + g % 8], (q & 15) << (g / 8 * 4));
    set_bits(b[104 + g % 4], (q >> 4) << (g / 4 * 2));
  }
  put_half(s.d, b + 108);
}

void write_scales_k4(const SuperBlock& s, std::byte* b) {
  put_half(s.d, b);
  put_half(s.dmin, b + 2);
  for (int g = 0; g < 4; ++g) {
    set_bits(b[4 + g], s.scale[g] | (s.scale[g + 4] >> 4) << 6);
    set_bits(b[8 + g], s.min[g] | (s.min[g + 4] >> 4) << 6);
    set_bits(b[12 + g], (s.scale[g + 4] & 15) | (s.min[g + 4] & 15) << 4);
  }
}

void write_q4_k(const SuperBlock& s, std::byte* b) {
  write_scales_k4(s, b);
  for (int i = 0; i < 256; ++i) set_bits(b[16 + i / 64 * 32 + i % 32], s.code[i] << (i % 64 / 32 * 4));
}

void write_q5_k(const SuperBlock& s, std::byte* b) {
  write_scales_k4(s, b);
  for (int i = 0; i < 256; ++i) {
    set_bits(b[16 + i % 32], (s.code[i] >> 4) << (i / 32));
    set_bits(b[48 + i / 64 * 32 + i % 32], (s.code[i] & 15) << (i % 64 / 32 * 4));
  }
}

void write_q6_k(const SuperBlock& s, std::byte* b) {
  for (int i = 0; i < 256; ++i) {
    const int q = s.code[i] + 32, half = i / 128, in = i % 128;
    set_bits(b[half * 64 + in % 64], (q & 15) << (in / 64 * 4));
    set_bits(b[128 + half * 32 + in % 32], (q >> 4) << (in / 32 * 2));
  }
  for (int g = 0; g < 16; ++g) b[192 + g] = static_cast<std::byte>(s.scale[g]);
  put_half(s.d, b + 208);
}

void make_iq4_xs(const float* x, std::byte* b) {
  float fits[8];
  float peak = 0;
  for (int g = 0; g < 8; ++g) {
    fits[g] = fit_iq4(x + g * 32);
    peak = std::abs(fits[g]) > std::abs(peak) ? fits[g] : peak;
  }
  const float d = as_half(-peak / 32);
  put_half(d, b);
  for (int g = 0; g < 8; ++g) {
    const int scale = nearest_code(fits[g], inverse_of(d), -32, 31);
    const float inverse = inverse_of(d * static_cast<float>(scale));
    set_bits(b[4 + g / 2], ((scale + 32) & 15) << (g % 2 * 4));
    set_bits(b[2 + g / 4], ((scale + 32) >> 4) << (g % 4 * 2));
    for (int i = 0; i < 32; ++i) set_bits(b[8 + g * 16 + i % 16], nearest_in(kIq4Values, x[g * 32 + i] * inverse) << (i / 16 * 4));
  }
}

}  // namespace

int nearest_in(const std::array<std::int8_t, 16>& values, float x) {
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    if (std::abs(static_cast<float>(values[static_cast<std::size_t>(i)]) - x) <
        std::abs(static_cast<float>(values[static_cast<std::size_t>(best)]) - x)) {
      best = i;
    }
  }
  return best;
}

float fit_iq4(const float* x) {
  float peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::abs(x[i]) > std::abs(peak) ? x[i] : peak;
  if (std::abs(peak) < 1e-30F) return 0;
  float best = 0, scale = 0;
  for (int trial = -7; trial <= 7; ++trial) {
    const float inverse = (static_cast<float>(kIq4Values[0]) + 2 * static_cast<float>(trial)) / peak;
    float xq = 0, qq = 0;
    for (int i = 0; i < 32; ++i) {
      const auto q = static_cast<float>(kIq4Values[static_cast<std::size_t>(nearest_in(kIq4Values, x[i] * inverse))]);
      xq += x[i] * q;
      qq += q * q;
    }
    if (qq > 0 && xq * xq > best * qq) {
      best = xq * xq / qq;
      scale = xq / qq;
    }
  }
  return scale;
}

void quantize_super_block(DType dtype, const float* x, std::byte* block) {
  std::memset(block, 0, static_cast<std::size_t>(info(dtype).block_bytes));
  switch (dtype) {
    case DType::kQ2_K: return write_q2_k(affine_block(x, 16, 3, 15), block);
    case DType::kQ3_K: return write_q3_k(symmetric_block(x, 4, 32), block);
    case DType::kQ4_K: return write_q4_k(affine_block(x, 32, 15, 63), block);
    case DType::kQ5_K: return write_q5_k(affine_block(x, 32, 31, 63), block);
    case DType::kQ6_K: return write_q6_k(symmetric_block(x, 32, 128), block);
    case DType::kIQ4_XS: return make_iq4_xs(x, block);
    default: STRATA_CHECK(false, "{} is no super-block", name(dtype));
  }
}

}  // namespace strata
