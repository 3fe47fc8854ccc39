// Activations to integers: plain loops that each instruction set's file compiles for itself.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cpu/quant_product.h"

namespace strata::cpu {
namespace {

// One row. The result does not depend on how the compiler vectorises it: every step is exact or rounds once.
template <int kGroup>
inline void quantize_activations(const float* x, int bias, const QuantRows& to) {
  for (std::int64_t b = 0; b < to.inputs / 32; ++b, x += 32) {
    std::uint32_t bits[32];
    std::memcpy(bits, x, sizeof(bits));
    std::uint32_t peak_bits = 0;  // magnitudes compare as integers
    for (const std::uint32_t v : bits) peak_bits = (v & 0x7FFFFFFFU) > peak_bits ? (v & 0x7FFFFFFFU) : peak_bits;
    float peak;
    std::memcpy(&peak, &peak_bits, 4);
    const float scale = peak / 127.0F, inverse = peak > 1e-30F ? 127.0F / peak : 0.0F;
    std::int32_t code[32];
    for (int i = 0; i < 32; ++i) {
      constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number, ties to even
      code[i] = static_cast<std::int32_t>((x[i] * inverse + kRound) - kRound);
    }
    for (int i = 0; i < 32; ++i) to.codes[b * 32 + i] = static_cast<std::int8_t>(code[i]);
    to.scale[b * to.stride] = scale;
    for (int g = 0; g < 32 / kGroup; ++g) {
      std::int32_t sum = 0;
      for (int i = 0; i < kGroup; ++i) sum += code[g * kGroup + i];
      to.start[(b * (32 / kGroup) + g) * to.stride] = -bias * sum;
      to.shift[(b * (32 / kGroup) + g) * to.stride] = scale * static_cast<float>(sum);
    }
  }
}

}  // namespace
}  // namespace strata::cpu
