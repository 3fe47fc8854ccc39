// The few questions about characters that tokenizers ask outside regular expressions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

// White_Space of the Unicode character database.
bool is_white_space(char32_t character);
// \w of Unicode (UTS #18): letters, marks, decimal digits, connectors, joiners.
bool is_word(char32_t character);

// Bytes of white space at either end of valid UTF-8.
size_t leading_white_space(std::string_view text);
size_t trailing_white_space(std::string_view text);

// The first and the last character of valid UTF-8 that is not empty.
char32_t first_char(std::string_view text);
char32_t last_char(std::string_view text);

// The lower case of one character, without regard to its neighbours.
void append_lowercase(std::string& out, char32_t character);

}  // namespace strata
