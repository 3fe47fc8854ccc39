#include "tensor/dtype.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace strata {

const DTypeInfo& info(DType dtype) {
  // In the order of the enum. Block bytes: q4_0 = f16 scale + 16 nibble bytes, q4_1 adds a minimum, q5 a 4-byte high-bit
  // mask, q8_0 = f16 scale + 32 bytes; K types are super-blocks of 256; mxfp4 = e8m0 scale + 16 bytes;
  // nvfp4 = 8 bytes + e4m3 scale.
  static constexpr std::array<DTypeInfo, 25> kInfo = {{
      {"f32", 1, 4},     {"f16", 1, 2},     {"bf16", 1, 2},    {"f64", 1, 8},      {"f8_e4m3", 1, 1},  {"i8", 1, 1},
      {"u8", 1, 1},      {"i16", 1, 2},     {"i32", 1, 4},     {"i64", 1, 8},      {"bool", 1, 1},     {"q4_0", 32, 18},
      {"q4_1", 32, 20},  {"q5_0", 32, 22},  {"q5_1", 32, 24},  {"q8_0", 32, 34},   {"q2_k", 256, 84},  {"q3_k", 256, 110},
      {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210}, {"iq4_nl", 32, 18}, {"iq4_xs", 256, 136}, {"mxfp4", 32, 17},
      {"nvfp4", 16, 9},
  }};
  return kInfo.at(static_cast<std::size_t>(dtype));
}

std::size_t bytes_of(DType dtype, std::int64_t elements) {
  const DTypeInfo& i = info(dtype);
  STRATA_CHECK(elements % i.block_elements == 0, "{} elements are not whole {} blocks", elements, i.name);
  return static_cast<std::size_t>(elements / i.block_elements) * static_cast<std::size_t>(i.block_bytes);
}

float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float f = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -f : f;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t float_to_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const float a = std::fabs(x);
  if (std::isnan(x)) return sign | 0x7e00;
  if (a >= 65520.0F) return sign | 0x7c00;
  if (a < 0x1p-14F) return sign | static_cast<std::uint16_t>(std::nearbyint(a * 0x1p24F));
  const std::uint32_t rounded = (bits & 0x7fffffff) + 0xfff + ((bits >> 13) & 1);
  return sign | static_cast<std::uint16_t>((rounded - (112U << 23)) >> 13);
}

float f8e4m3_to_float(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  float f = 0;
  if (exponent == 15 && mantissa == 7) {
    f = std::nanf("");
  } else if (exponent == 0) {
    f = std::ldexp(static_cast<float>(mantissa), -9);
  } else {
    f = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return (bits & 0x80) != 0 ? -f : f;
}

std::uint8_t float_to_f8e4m3(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  const float a = std::fabs(x);
  if (a >= 448.0F) return sign | 0x7e;
  if (a < 0x1p-6F) return sign | static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(a + 0x1p14F) & 15);  // steps of 2^-9
  std::uint32_t bits = std::bit_cast<std::uint32_t>(a);
  bits += 0x7ffff + (bits >> 20 & 1);
  return sign | static_cast<std::uint8_t>((bits >> 20) - (120 << 3));  // the exponent is 120 less
}

}  // namespace strata
