// MXFP4 as gpt-oss publishes it, in the common form.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata {

inline constexpr std::size_t kMxfp4Bytes = 17;  // of a block of 32 elements: exponent, then halves of bytes

// A published block of a row is 16 bytes, element 2i in the low half of byte i, its exponent lying apart. The common form
// (`DType::kMXFP4`) has the exponent first and elements i and i + 16 in byte i.
inline void repack_mxfp4(const std::uint8_t* blocks, std::uint8_t exponent, std::byte* to) {
  const auto element = [&](int i) { return i % 2 == 0 ? blocks[i / 2] & 15 : blocks[i / 2] >> 4; };
  to[0] = static_cast<std::byte>(exponent);
  for (int i = 0; i < 16; ++i) to[1 + i] = static_cast<std::byte>(element(i) | element(i + 16) << 4);
}

}  // namespace strata
