// Unicode text as templates see it: code points in UTF-8 strings and the character classes of Python's str.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace strata::jinja {

// Every function takes any bytes: one that is not UTF-8 counts as one code point of its own value.

// The code point at byte `pos` (< text.size()); moves pos behind it.
char32_t decode(std::string_view text, size_t& pos);

// Bytes that do not continue a character; equals the number of code points of valid UTF-8.
size_t count_code_points(std::string_view text);

// Byte offset of code point `index` (<= their number).
size_t byte_offset(std::string_view text, size_t index);

// The code points of text, each as a view into it.
std::vector<std::string_view> split_code_points(std::string_view text);

// str.isspace of one character, which is also what \s matches.
bool is_space(char32_t c);
// str.splitlines breaks here.
bool is_line_break(char32_t c);
// str.isprintable of one character: what repr() shows unescaped.
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_casefold(std::string_view text);
std::string swap_case(std::string_view text);
// First character in title case, the rest in lower case.
std::string capitalize(std::string_view text);
// str.title: every run of letters begins in title case.
std::string title_case(std::string_view text);

// Without leading / trailing characters that are white space or, if `chars` is not null, are in *chars.
std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars = nullptr);

}  // namespace strata::jinja
