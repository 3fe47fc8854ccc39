#include "text/utf8.h"

#include <simdjson.h>

#include <cstring>

namespace strata {

Utf8Char utf8_char(std::string_view valid, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(valid[at + i])); };
  switch (utf8_length(valid[at])) {
    case 1:
      return {byte(0), 1};
    case 2:
      return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    case 3:
      return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    default:
      return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
  }
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

bool is_ascii(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & kHighBits) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<uint8_t>(text[i]) & 0x80) return false;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Utf8Stream stream;
  stream.add(text, out);
  stream.flush(out);
  return out;
}

// Byte ranges from the Unicode standard, table 3-7.
void Utf8Stream::start(uint8_t byte, std::string& out) {
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    out += kReplacementCharacter;
    return;
  }
  wanted_ = static_cast<int>(utf8_length(static_cast<char>(byte)));
  low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  bytes_[0] = static_cast<char>(byte);
  held_ = 1;
}

void Utf8Stream::add(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (held_ > 0 && (byte < low_ || byte > high_)) {
      out += kReplacementCharacter;
      held_ = 0;
    }
    if (held_ == 0) {
      start(byte, out);
      continue;
    }
    bytes_[held_++] = c;
    low_ = 0x80;
    high_ = 0xBF;
    if (held_ == wanted_) {
      out.append(bytes_, static_cast<size_t>(held_));
      held_ = 0;
    }
  }
}

void Utf8Stream::flush(std::string& out) {
  if (held_ > 0) out += kReplacementCharacter;
  held_ = 0;
}

}  // namespace strata
