// Reads, writes and repairs UTF-8, whole or a few bytes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// U+FFFD, what stands in for bytes that are no character.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Char {
  char32_t value;
  size_t length;  // bytes, 1 to 4
};

// The character at byte `at` of valid UTF-8.
Utf8Char utf8_char(std::string_view valid, size_t at);

// The bytes of the character whose first byte this is (valid UTF-8).
inline size_t utf8_length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_utf8(std::string& out, char32_t character);

bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);

// The text with every maximal ill-formed part replaced by U+FFFD (Unicode standard, section 3.9, "maximal
// subparts").
std::string repair_utf8(std::string_view text);

// Turns bytes that arrive in pieces into valid UTF-8 text. An incomplete character is held back until its
// last byte comes; ill-formed parts become U+FFFD as in repair_utf8, wherever the pieces were cut.
// A value for one stream and one thread.
class Utf8Stream {
 public:
  void add(std::string_view bytes, std::string& out);
  // The end of the bytes: a character still incomplete becomes U+FFFD.
  void flush(std::string& out);
  // Whether bytes of an incomplete character are held back.
  bool pending() const { return held_ > 0; }

 private:
  void start(uint8_t byte, std::string& out);

  char bytes_[4] = {};
  int held_ = 0;     // bytes of the current character seen so far
  int wanted_ = 0;   // bytes it has in all
  uint8_t low_ = 0;  // range of its next byte
  uint8_t high_ = 0;
};

}  // namespace strata
