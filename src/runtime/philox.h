// Philox4x32-10: random numbers as a function of (seed, position), so that a draw depends on nothing else.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

// Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
inline std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t counter_low, std::uint64_t counter_high = 0) {
  std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
                                    static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// Uniform in [0, 1), 53 bits.
inline double philox_uniform(std::uint64_t seed, std::uint64_t position) {
  const auto r = philox(seed, position);
  return static_cast<double>(((std::uint64_t{r[0]} << 32 | r[1]) >> 11)) * 0x1p-53;
}

}  // namespace strata
