// str.format and the format specification mini-language.
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

constexpr Int kMaxWidth = 1'000'000;

struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, zero = false;
  Int width = 0;
  int precision = -1;
};

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t pos = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    size_t after = 0;
    decode(text, after);
    if (after < text.size() && is_align(text[after])) {
      spec.fill = text.substr(0, after);
      spec.align = text[after];
      pos = after + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto at = [&] { return pos < text.size() ? text[pos] : '\0'; };
  const auto number = [&] {
    Int value = 0;
    while (at() >= '0' && at() <= '9') value = std::min(kMaxWidth + 1, value * 10 + (text[pos++] - '0'));
    if (value > kMaxWidth) fail("format width is too large");
    return value;
  };
  if (at() == '+' || at() == '-' || at() == ' ') spec.sign = text[pos++];
  if (at() == '#') {
    spec.alternate = true;
    ++pos;
  }
  if (at() == '0') {
    spec.zero = true;
    ++pos;
  }
  spec.width = number();
  if (at() == ',' || at() == '_') spec.grouping = text[pos++];
  if (at() == '.') {
    ++pos;
    if (at() < '0' || at() > '9') fail("Format specifier missing precision");
    spec.precision = static_cast<int>(number());
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (pos < text.size()) fail("Invalid format specifier '", std::string(text), "'");
  if (spec.zero && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
  }
  return spec;
}

std::string group(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string pad(const Spec& spec, const std::string& prefix, std::string body, char default_align) {
  const char align = spec.align ? spec.align : default_align;
  const Int missing = spec.width - static_cast<Int>(count_code_points(body) + prefix.size());
  if (missing <= 0) return prefix + body;
  const auto fill = [&spec](Int n) {
    std::string out;
    for (Int i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  switch (align) {
    case '<':
      return prefix + body + fill(missing);
    case '>':
      return fill(missing) + prefix + body;
    case '^':
      return fill(missing / 2) + prefix + body + fill(missing - missing / 2);
    default:
      return prefix + fill(missing) + body;
  }
}

std::string sign_of(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string format_integer(Int value, const Spec& spec) {
  const bool negative = value < 0;
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  unsigned base = 10;
  switch (spec.type) {
    case 'b':
      base = 2;
      break;
    case 'o':
      base = 8;
      break;
    case 'x':
    case 'X':
      base = 16;
      break;
    case 0:
    case 'd':
    case 'n':
      break;
    case 'c': {
      if (value < 0 || value > 0x10FFFF) fail("%c arg not in range(0x110000)");
      std::string character;
      append_utf8(character, static_cast<char32_t>(value));
      return pad(spec, "", std::move(character), '<');
    }
    default:
      fail("Unknown format code '", std::string(1, spec.type), "' for object of type 'int'");
  }
  __extension__ typedef unsigned __int128 Unsigned;
  auto rest = negative ? Unsigned{0} - static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
  std::string digits;
  const std::string_view alphabet = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  do digits += alphabet[static_cast<size_t>(rest % base)];
  while ((rest /= base) != 0);
  std::reverse(digits.begin(), digits.end());
  if (spec.grouping) digits = group(digits, spec.grouping, base == 10 ? 3 : 4);
  std::string prefix = sign_of(spec, negative);
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
  return pad(spec, prefix, std::move(digits), '>');
}

std::string format_real(double value, const Spec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::abs(value);
  std::string body;
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) {
        body = repr_float(magnitude);
      } else {  // like g, but with a digit behind the point
        body = format_float(magnitude, std::max(spec.precision, 1), 'g', spec.alternate);
        if (std::isfinite(magnitude) && body.find_first_of(".e") == std::string::npos) body += ".0";
      }
      break;
    case '%':
      body =
          format_float(magnitude * 100, spec.precision < 0 ? 6 : spec.precision, 'f', spec.alternate) + "%";
      break;
    case 'n':
      body = format_float(magnitude, spec.precision < 0 ? 6 : spec.precision, 'g', spec.alternate);
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      body = format_float(magnitude, spec.precision < 0 ? 6 : spec.precision, spec.type, spec.alternate);
      break;
    default:
      fail("Unknown format code '", std::string(1, spec.type), "' for object of type 'float'");
  }
  if (spec.grouping) {
    const size_t end = std::min(body.find_first_not_of("0123456789"), body.size());
    body = group(body.substr(0, end), spec.grouping, 3) + body.substr(end);
  }
  return pad(spec, sign_of(spec, negative), std::move(body), '>');
}

std::string format_text(std::string text, const Spec& spec) {
  if (spec.type && spec.type != 's')
    fail("Unknown format code '", std::string(1, spec.type), "' for object of type 'str'");
  if (spec.grouping) fail("Cannot specify '", std::string(1, spec.grouping), "' with 's'.");
  if (spec.sign != '-') fail("Sign not allowed in string format specifier");
  if (spec.align == '=' && !spec.zero) fail("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  Spec padded = spec;
  if (spec.zero && spec.align == '=') padded.align = '<';
  return pad(padded, "", std::move(text), '<');
}

class BraceFormatter {
 public:
  BraceFormatter(const Args& args, bool safe) : args_(args), safe_(safe) {}

  std::string run(std::string_view text, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char c = text[pos];
      const bool doubled = pos + 1 < text.size() && text[pos + 1] == c;
      if (c != '{' && c != '}') {
        out += c;
        ++pos;
      } else if (doubled) {
        out += c;
        pos += 2;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        const size_t end = closing(text, pos);
        out += field(text.substr(pos + 1, end - pos - 1), depth);
        pos = end + 1;
      }
      if (out.size() > kMaxText) fail("formatted text is too long");
    }
    return out;
  }

 private:
  static size_t closing(std::string_view text, size_t open) {
    int depth = 0;
    for (size_t pos = open; pos < text.size(); ++pos) {
      depth += text[pos] == '{' ? 1 : text[pos] == '}' ? -1 : 0;
      if (depth == 0) return pos;
    }
    fail(open + 1 == text.size() ? "Single '{' encountered in format string"
                                 : "expected '}' before end of string");
  }

  // name!conversion:spec
  std::string field(std::string_view text, int depth) {
    size_t end = 0;
    for (int brackets = 0; end < text.size(); ++end) {
      if (text[end] == '[') ++brackets;
      if (text[end] == ']') --brackets;
      if (brackets <= 0 && (text[end] == '!' || text[end] == ':')) break;
    }
    Value value = lookup(text.substr(0, end));
    std::string_view rest = text.substr(end);
    if (rest.starts_with("!")) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        fail("expected ':' after conversion specifier");
      if (rest[1] != 's' && rest[1] != 'r' && rest[1] != 'a')
        fail("Unknown conversion specifier ", std::string(1, rest[1]));
      value = Value(rest[1] == 's'   ? to_string(value)
                    : rest[1] == 'a' ? escape_non_ascii(repr(value))
                                     : repr(value));
      rest.remove_prefix(2);
    }
    if (rest.starts_with(":")) rest.remove_prefix(1);
    std::string out = format_value(value, run(rest, depth + 1));
    return safe_ && !(value.is_str() && value.str().safe) ? escape_html(out) : out;
  }

  Value lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(std::string(name.substr(0, first_end)));
    for (size_t pos = first_end; pos < name.size();) {
      if (name[pos] == '.') {
        const size_t end = std::min(name.find_first_of(".[", pos + 1), name.size());
        value = get_attribute(value, std::string(name.substr(pos + 1, end - pos - 1)));
        pos = end;
      } else if (name[pos] == '[') {
        const size_t end = name.find(']', pos);
        if (end == name.npos) fail("Missing ']' in format string");
        const std::string key(name.substr(pos + 1, end - pos - 1));
        const bool number =
            !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
        value = get_item(value, number ? Value(Int{std::stoll(key)}) : Value(key));
        pos = end + 1;
      } else {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value argument(const std::string& name) {
    if (name.find_first_not_of("0123456789") == std::string::npos && name.size() < 10) {
      if (name.empty() ? manual_ : next_ > 0)
        fail("cannot switch between manual and automatic field numbering");
      if (!name.empty()) manual_ = true;
      const size_t index = name.empty() ? next_++ : std::stoul(name);
      if (index >= args_.positional.size())
        fail("Replacement index ", std::to_string(index), " out of range for positional args tuple");
      return args_.positional[index];
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    fail("key not found: ", repr_str(name));
  }

  const Args& args_;
  bool safe_;
  bool manual_ = false;
  size_t next_ = 0;
};

}  // namespace

std::string format_float(double v, int precision, char type, bool alternate) {
  if (!std::isfinite(v)) {
    const bool upper = type == 'E' || type == 'F' || type == 'G';
    return std::isnan(v) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  }
  const char format[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0',
      '\0'};
  const int size = std::snprintf(nullptr, 0, format, precision, v);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format, precision, v);
  out.pop_back();
  return out;
}

std::string format_value(const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) return to_string(v);
  const bool text = v.is_str();
  if (!text && !v.is_number()) fail("unsupported format string passed to ", type_name(v), ".__format__");
  const Spec spec = parse_spec(spec_text);
  if (text) return format_text(v.text(), spec);
  const bool real =
      v.is_float() || (spec.type && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  if (v.is_bool() && spec.type == 0 && !real) return format_integer(v.as_int(), spec);
  return real ? format_real(v.as_float(), spec) : format_integer(v.as_int(), spec);
}

std::string format_braces(const Value& format, const Args& args) {
  return BraceFormatter(args, format.str().safe).run(format.text(), 0);
}

}  // namespace strata::jinja
