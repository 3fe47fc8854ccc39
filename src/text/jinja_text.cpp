// Splitting, replacing and padding text.
#include "text/jinja_text.h"

#include <algorithm>

#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

constexpr Int kMaxWidth = 10'000'000;

size_t last_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, std::string_view separator, Int limit,
                                    bool from_right) {
  if (separator.empty()) fail("empty separator");
  std::vector<std::string_view> out;
  while (limit != 0) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == text.npos) break;
    if (from_right) {
      out.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      out.push_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
    if (limit > 0) --limit;
  }
  out.push_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_space(std::string_view text, Int limit, bool from_right) {
  std::vector<std::string_view> out;
  while (true) {
    text = strip(text, !from_right, from_right);
    if (text.empty()) break;
    if (limit == 0) {  // the rest stays whole, but for white space at its outer end
      out.push_back(text);
      break;
    }
    if (from_right) {
      size_t begin = text.size();
      while (begin > 0) {
        size_t at = last_before(text, begin);
        const size_t previous = at;
        if (is_space(decode(text, at))) break;
        begin = previous;
      }
      out.push_back(text.substr(begin));
      text = text.substr(0, begin);
    } else {
      size_t end = 0;
      while (end < text.size()) {
        size_t next = end;
        if (is_space(decode(text, next))) break;
        end = next;
      }
      out.push_back(text.substr(0, end));
      text = text.substr(end);
    }
    if (limit > 0) --limit;
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos;
    const char32_t c = decode(text, pos);
    if (!is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    out.push_back(text.substr(begin, (keep_ends ? pos : end) - begin));
    begin = pos;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, Int limit) {
  std::string out;
  const auto check = [&out] {
    if (out.size() > kMaxText) fail("replaced text is too long");
  };
  if (from.empty()) {  // between all characters and at both ends
    for (const auto c : split_code_points(text)) {
      if (limit != 0) out += to;
      if (limit > 0) --limit;
      out += c;
      check();
    }
    if (limit != 0) out += to;
    return out;
  }
  size_t pos = 0;
  for (; limit != 0; limit -= limit > 0 ? 1 : 0) {
    const size_t at = text.find(from, pos);
    if (at == text.npos) break;
    out += text.substr(pos, at - pos);
    out += to;
    check();
    pos = at + from.size();
  }
  out += text.substr(pos);
  return out;
}

std::string justify_text(std::string_view text, Int width, char align, std::string_view fill) {
  const Int missing = width - static_cast<Int>(count_code_points(text));
  if (missing <= 0) return std::string(text);
  if (width > kMaxWidth) fail("width is too large");
  // str.center puts the odd one on the left if the width is odd.
  const Int left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (Int i = 0; i < left; ++i) out += fill;
  out += text;
  for (Int i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace strata::jinja
