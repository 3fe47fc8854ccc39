// quantize_row: f32 to blocks of 32, and the choice among all types; the super-blocks are in quantize_k.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/quant.h"
#include "tensor/quant_fit.h"
#include "tensor/quantize_k.h"

namespace strata {
namespace {

void put_half(float x, std::byte* to) {
  const std::uint16_t bits = float_to_half(x);
  std::memcpy(to, &bits, 2);
}

float inverse_of(float x) { return x == 0 ? 0.0F : 1 / x; }

void put_nibbles(const int* q, std::byte* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<std::byte>(q[i] | q[i + 16] << 4);
}

void put_fifth_bits(const int* q, std::byte* to) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<std::uint32_t>(q[i] >> 4 & 1) << i;
  std::memcpy(to, &bits, 4);
}

void make_q8_0(const float* x, std::byte* b) {
  float peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::max(peak, std::abs(x[i]));
  const float d = half_to_float(float_to_half(peak / 127)), inverse = inverse_of(d);
  put_half(d, b);
  for (int i = 0; i < 32; ++i) b[2 + i] = static_cast<std::byte>(nearest_code(x[i], inverse, -127, 127));
}

// Q4_0 and Q5_0: d, (fifth bits,) nibbles of code + half.
void make_symmetric(const float* x, int half, std::byte* b) {
  const float d = half_to_float(float_to_half(fit_symmetric(x, 32, -half, half - 1))), inverse = inverse_of(d);
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = nearest_code(x[i], inverse, -half, half - 1) + half;
  put_half(d, b);
  if (half == 16) put_fifth_bits(q, b + 2);
  for (int& v : q) v &= 15;
  put_nibbles(q, b + (half == 16 ? 6 : 2));
}

// Q4_1 and Q5_1: d, minimum, (fifth bits,) nibbles. The minimum may have either sign.
void make_affine(const float* x, int high, std::byte* b) {
  const auto [low, top] = std::minmax_element(x, x + 32);
  const float min = half_to_float(float_to_half(*low)), d = half_to_float(float_to_half((*top - min) / static_cast<float>(high)));
  const float inverse = inverse_of(d);
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = nearest_code(x[i] - min, inverse, 0, high);
  put_half(d, b);
  put_half(min, b + 2);
  if (high == 31) put_fifth_bits(q, b + 4);
  for (int& v : q) v &= 15;
  put_nibbles(q, b + (high == 31 ? 8 : 4));
}

// E8M0 scale: of the two powers of two around the largest element over 6, the one of less squared error.
void make_mxfp4(const float* x, std::byte* b) {
  float peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::max(peak, std::abs(x[i]));
  const int low = peak > 0 ? std::clamp(std::ilogb(peak) - 2 + 127, 0, 253) : 0;
  float least = HUGE_VALF;
  for (int e = low; e <= low + 1; ++e) {
    const float half = std::ldexp(1.0F, e - 128);
    int q[32];
    float error = 0;
    for (int i = 0; i < 32; ++i) {
      q[i] = nearest_in(kMxfp4Values, x[i] / half);
      const float miss = half * static_cast<float>(kMxfp4Values[static_cast<std::size_t>(q[i])]) - x[i];
      error += miss * miss;
    }
    if (error >= least) continue;
    least = error;
    b[0] = static_cast<std::byte>(e);
    put_nibbles(q, b + 1);
  }
}

// The scale that takes the largest element to 6, up or down to one that E4M3 has: whichever errs less.
void make_nvfp4(const float* x, std::byte* b) {
  float peak = 0;
  for (int i = 0; i < 16; ++i) peak = std::max(peak, std::abs(x[i]));
  const int near = float_to_f8e4m3(peak / 6);
  float least = HUGE_VALF;
  for (int s = std::max(near - 1, 0); s <= std::min(near + 1, 0x7e); ++s) {
    const float half = f8e4m3_to_float(static_cast<std::uint8_t>(s)) / 2;
    int q[16];
    float error = 0;
    for (int i = 0; i < 16; ++i) {
      q[i] = nearest_in(kMxfp4Values, x[i] * inverse_of(half));
      const float miss = half * static_cast<float>(kMxfp4Values[static_cast<std::size_t>(q[i])]) - x[i];
      error += miss * miss;
    }
    if (error >= least) continue;
    least = error;
    for (int i = 0; i < 8; ++i) b[i] = static_cast<std::byte>(q[2 * i] | q[2 * i + 1] << 4);
    b[8] = static_cast<std::byte>(s);
  }
}

void make_iq4_nl(const float* x, std::byte* b) {
  const float d = half_to_float(float_to_half(fit_iq4(x)));
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = nearest_in(kIq4Values, x[i] * inverse_of(d));
  put_half(d, b);
  put_nibbles(q, b + 2);
}

}  // namespace

void quantize_row(DType dtype, const float* x, std::int64_t count, std::byte* blocks) {
  const DTypeInfo& type = info(dtype);
  STRATA_CHECK(is_block_type(dtype), "{} is no block type", type.name);
  STRATA_CHECK(count % type.block_elements == 0, "{} elements are not whole {} blocks", count, type.name);
  for (; count > 0; count -= type.block_elements, x += type.block_elements, blocks += type.block_bytes) {
    switch (dtype) {
      case DType::kQ8_0: make_q8_0(x, blocks); break;
      case DType::kQ4_0: make_symmetric(x, 8, blocks); break;
      case DType::kQ5_0: make_symmetric(x, 16, blocks); break;
      case DType::kQ4_1: make_affine(x, 15, blocks); break;
      case DType::kQ5_1: make_affine(x, 31, blocks); break;
      case DType::kIQ4_NL: make_iq4_nl(x, blocks); break;
      case DType::kMXFP4: make_mxfp4(x, blocks); break;
      case DType::kNVFP4: make_nvfp4(x, blocks); break;
      default: quantize_super_block(dtype, x, blocks); break;
    }
  }
}

}  // namespace strata
