#include "text/unicode.h"

#include <utf8proc.h>

#include "text/utf8.h"

namespace strata {
namespace {

// Where the last character of valid UTF-8 starts.
size_t last_start(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;  // Join_Control
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189)) {
    return true;  // Other_Alphabetic symbols
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

size_t leading_white_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = utf8_char(text, at);
    if (!is_white_space(c.value)) break;
    at += c.length;
  }
  return at;
}

size_t trailing_white_space(std::string_view text) {
  const size_t size = text.size();
  while (!text.empty() && is_white_space(last_char(text))) text.remove_suffix(text.size() - last_start(text));
  return size - text.size();
}

char32_t first_char(std::string_view text) { return utf8_char(text, 0).value; }

char32_t last_char(std::string_view text) { return utf8_char(text, last_start(text)).value; }

void append_lowercase(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one character whose lower case is two, in any language
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace strata
