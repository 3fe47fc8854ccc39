// The byte-level alphabet of GPT-2: every byte has one printable character, so that any bytes can be token
// text.
//
// Printable bytes of Latin-1 stand for themselves, the other 68 for U+0100, U+0101, ... in order.
// Source: bytes_to_unicode in the GPT-2 release (github.com/openai/gpt-2, src/encoder.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// The character of a byte.
char32_t byte_level_char(uint8_t byte);

// Each byte as its character, in UTF-8.
void append_byte_level(std::string& out, std::string_view bytes);

// The bytes of token text. Text with a character outside the alphabet stands for itself (an added token).
std::string byte_level_bytes(std::string_view token);

}  // namespace strata
