// Code points and character classes, over utf8proc's tables, with a fast path for ASCII.
#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace strata::jinja {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xB7 || c == 0x2019 || c == 0x2018)
    return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

// Characters whose upper case is several characters (Unicode SpecialCasing.txt, unconditional rows of living
// use).
struct Special {
  char32_t c;
  const char* upper;
  const char* title;
};
constexpr Special kSpecial[] = {
    {0xDF, "SS", "Ss"},
    {0x149, "\u02bcN", "\u02bcN"},
    {0x1F0, "J\u030c", "J\u030c"},
    {0x587, "\u0535\u0552", "\u0535\u0582"},
    {0x1E96, "H\u0331", "H\u0331"},
    {0x1E97, "T\u0308", "T\u0308"},
    {0x1E98, "W\u030a", "W\u030a"},
    {0x1E99, "Y\u030a", "Y\u030a"},
    {0x1E9A, "A\u02be", "A\u02be"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

const Special* special(char32_t c) {
  if (c < 0xDF) return nullptr;
  const auto* found =
      std::find_if(std::begin(kSpecial), std::end(kSpecial), [c](const Special& s) { return s.c == c; });
  return found == std::end(kSpecial) ? nullptr : found;
}

void append_upper(std::string& out, char32_t c) {
  if (const Special* s = special(c)) {
    out += s->upper;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const Special* s = special(c)) {
    out += s->title;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

// Lower case of the character at [begin, end) of text; a sigma that ends a word becomes a final sigma.
void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == 0x130) {
    out += "i\u0307";
  } else if (c == 0x3A3) {
    bool before = false;
    for (size_t i = begin; i > 0;) {
      do --i;
      while (i > 0 && is_continuation(text[i]));
      size_t at = i;
      const char32_t previous = decode(text, at);
      if (is_case_ignorable(previous)) continue;
      before = is_cased(previous);
      break;
    }
    bool after = false;
    for (size_t i = end; i < text.size();) {
      const char32_t next = decode(text, i);
      if (is_case_ignorable(next)) continue;
      after = is_cased(next);
      break;
    }
    append_utf8(out, before && !after ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace

char32_t decode(std::string_view text, size_t& pos) {
  const unsigned char first = static_cast<unsigned char>(text[pos]);
  if (first < 0x80) {
    ++pos;
    return first;
  }
  utf8proc_int32_t c = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + pos,
                                      static_cast<utf8proc_ssize_t>(text.size() - pos), &c);
  if (bytes <= 0) {
    ++pos;
    return first;
  }
  pos += static_cast<size_t>(bytes);
  return static_cast<char32_t>(c);
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t pos = 0;
  for (; pos < text.size(); ++pos) {
    if (is_continuation(text[pos])) continue;
    if (index == 0) return pos;
    --index;
  }
  return pos;
}

std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && is_continuation(text[end])) ++end;
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  // Decimal digits, superscripts and subscripts, and the circled digits.
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return is_decimal(c);
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}

bool is_title(char32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

bool is_identifier_start(char32_t c) {
  return c == '_' || is_alpha(c) || (c >= 0x80 && category(c) == UTF8PROC_CATEGORY_NL);
}

bool is_identifier_part(char32_t c) {
  if (is_identifier_start(c) || is_decimal(c)) return true;
  if (c < 0x80) return false;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) append_upper(out, decode(text, pos));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = decode(text, pos);
    append_lower(out, text, begin, pos, c);
  }
  return out;
}

std::string to_casefold(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = decode(text, pos);
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    if (count <= 0 || count > 8) {
      append_utf8(out, c);
    } else {
      for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<char32_t>(folded[i]));
    }
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = decode(text, pos);
    if (is_upper(c)) {
      append_lower(out, text, begin, pos, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = decode(text, pos);
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, pos, c);
    }
  }
  return out;
}

std::string title_case(std::string_view text) {
  std::string out;
  bool previous_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = decode(text, pos);
    if (previous_cased) {
      append_lower(out, text, begin, pos, c);
    } else {
      append_title(out, c);
    }
    previous_cased = is_cased(c);
  }
  return out;
}

std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars) {
  const auto matches = [chars](std::string_view character) {
    size_t at = 0;
    if (!chars) return is_space(decode(character, at));
    return chars->find(character) != std::string_view::npos;
  };
  while (left && !text.empty()) {
    size_t end = 0;
    decode(text, end);
    if (!matches(text.substr(0, end))) break;
    text.remove_prefix(end);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && is_continuation(text[begin])) --begin;
    if (!matches(text.substr(begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

}  // namespace strata::jinja
