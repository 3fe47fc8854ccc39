#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace strata {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> kChars = [] {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    chars[static_cast<size_t>(byte)] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return chars;
}();

// The highest character is U+0143: 68 bytes do not stand for themselves.
constexpr char32_t kEnd = 0x144;

constexpr std::array<int16_t, kEnd> kBytes = [] {
  std::array<int16_t, kEnd> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < 256; ++byte) bytes[kChars[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

char32_t byte_level_char(uint8_t byte) { return kChars[byte]; }

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char c : bytes) append_utf8(out, kChars[static_cast<uint8_t>(c)]);
}

std::string byte_level_bytes(std::string_view token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = utf8_char(token, at);
    if (c.value >= kEnd || kBytes[c.value] < 0) return std::string(token);
    out.push_back(static_cast<char>(kBytes[c.value]));
    at += c.length;
  }
  return out;
}

}  // namespace strata
