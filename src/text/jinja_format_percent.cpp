// printf-style formatting: "%-5s %03d" % (a, b).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja_arguments.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

constexpr Int kMaxWidth = 1'000'000;  // of one field; also bounds the precision

struct Conversion {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  Int width = 0;
  int precision = -1;
};

class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& arguments)
      : text_(format.text()),
        safe_(format.str().safe),
        arguments_(arguments),
        is_tuple_(arguments.is_sequence() && arguments.sequence().tuple) {}

  std::string run() {
    std::string out;
    for (pos_ = 0; pos_ < text_.size();) {
      const size_t percent = text_.find('%', pos_);
      out.append(text_, pos_, percent == text_.npos ? text_.npos : percent - pos_);
      if (percent == text_.npos) break;
      pos_ = percent + 1;
      out += field();
      if (out.size() > kMaxText) fail("formatted text is too long");
    }
    const bool mapping = arguments_.is_dict() || (arguments_.is_sequence() && !is_tuple_);
    if (is_tuple_ ? used_ < arguments_.items().size() : used_ == 0 && !mapping) {
      fail("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  char peek() const {
    if (pos_ >= text_.size()) fail("incomplete format");
    return text_[pos_];
  }

  const Value& next_argument() {
    if (is_tuple_ ? used_ >= arguments_.items().size() : used_ > 0)
      fail("not enough arguments for format string");
    ++used_;
    return is_tuple_ ? arguments_.items()[used_ - 1] : arguments_;
  }

  Int number() {
    if (peek() == '*') {
      ++pos_;
      return require_int(next_argument());
    }
    Int value = 0;
    while (peek() >= '0' && peek() <= '9')
      value = std::min(kMaxWidth + 1, value * 10 + (text_[pos_++] - '0'));
    return value;
  }

  std::string field() {
    Conversion c;
    Value named;
    if (peek() == '(') {
      if (!arguments_.is_dict()) fail("format requires a mapping");
      int depth = 1;
      const size_t begin = ++pos_;
      for (; depth > 0; ++pos_) depth += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
      const std::string key = text_.substr(begin, pos_ - begin - 1);
      const Value* found = arguments_.dict().find(key);
      if (!found) fail("key not found: ", repr_str(key));
      named = *found;
    }
    for (;; ++pos_) {
      const char flag = peek();
      if (flag == '-')
        c.left = true;
      else if (flag == '0')
        c.zero = true;
      else if (flag == '+')
        c.plus = true;
      else if (flag == ' ')
        c.space = true;
      else if (flag == '#')
        c.alternate = true;
      else
        break;
    }
    c.width = number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (peek() == '.') {
      ++pos_;
      c.precision = static_cast<int>(std::clamp<Int>(number(), 0, kMaxWidth));
    }
    if (c.width > kMaxWidth || c.precision >= kMaxWidth) fail("format width is too large");
    if (peek() == 'l' || peek() == 'h' || peek() == 'L') ++pos_;
    const char type = peek();
    ++pos_;
    if (type == '%') return "%";
    return convert(c, type, named.is_missing() ? next_argument() : named);
  }

  std::string convert(const Conversion& c, char type, const Value& v) {
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return string_field(c, type, v);
      case 'c':
        return pad(c, v.is_str() && v.str().length == 1 ? v.text() : character(v), "");
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer_field(c, type, v);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (v.is_undefined()) fail(v.undefined_message());
        if (!v.is_number()) fail("must be real number, not ", type_name(v));
        const double d = v.as_float();
        return pad(c, format_float(std::abs(d), c.precision < 0 ? 6 : c.precision, type, c.alternate),
                   sign(c, std::signbit(d)));
      }
      default:
        fail("unsupported format character '", std::string(1, type), "'");
    }
  }

  static std::string character(const Value& v) {
    const Int code = require_int(v);
    if (code < 0 || code > 0x10FFFF) fail("%c arg not in range(0x110000)");
    std::string out;
    append_utf8(out, static_cast<char32_t>(code));
    return out;
  }

  std::string string_field(const Conversion& c, char type, const Value& v) const {
    std::string text = type == 's' ? to_string(v) : type == 'a' ? escape_non_ascii(repr(v)) : repr(v);
    if (safe_ && !(v.is_str() && v.str().safe)) text = escape_html(text);
    if (c.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<size_t>(c.precision)));
    Conversion blanks = c;
    blanks.zero = false;
    return pad(blanks, text, "");
  }

  static std::string sign(const Conversion& c, bool negative) {
    return negative ? "-" : c.plus ? "+" : c.space ? " " : "";
  }

  static std::string integer_field(const Conversion& c, char type, const Value& v) {
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (v.is_undefined()) fail(v.undefined_message());
    if (!v.is_integral() && !(decimal && v.is_float()))
      fail("%", std::string(1, type), " format: a number is required, not ", type_name(v));
    if (v.is_float() && !(std::abs(v.as_float()) < 1e37)) fail("cannot convert float to integer");
    const Int value = v.is_float() ? static_cast<Int>(v.as_float()) : v.as_int();
    std::string digits =
        format_value(Value(value < 0 ? -value : value), decimal ? "d" : std::string(1, type));
    if (static_cast<int>(digits.size()) < c.precision)
      digits.insert(0, static_cast<size_t>(c.precision) - digits.size(), '0');
    std::string prefix = sign(c, value < 0);
    if (c.alternate && !decimal) prefix += std::string("0") + type;
    return pad(c, digits, prefix);
  }

  static std::string pad(const Conversion& c, const std::string& body, const std::string& prefix) {
    const Int fill = c.width - static_cast<Int>(count_code_points(body) + prefix.size());
    if (fill <= 0) return prefix + body;
    const auto n = static_cast<size_t>(fill);
    if (c.left) return prefix + body + std::string(n, ' ');
    return c.zero ? prefix + std::string(n, '0') + body : std::string(n, ' ') + prefix + body;
  }

  const std::string& text_;
  bool safe_;
  const Value& arguments_;
  bool is_tuple_;
  size_t pos_ = 0;
  size_t used_ = 0;
};

}  // namespace

std::string format_percent(const Value& format, const Value& arguments) {
  return PercentFormatter(format, arguments).run();
}

}  // namespace strata::jinja
