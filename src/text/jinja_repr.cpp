// Values as text: Python's str(), repr() and json.dumps().
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace strata::jinja {
namespace {

void append_repr(std::string& out, const Value& v);

void append_escape(std::string& out, char32_t c) {
  const auto code = static_cast<unsigned>(c);
  out += code < 0x100     ? fmt::format("\\x{:02x}", code)
         : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                          : fmt::format("\\U{:08x}", code);
}

void append_repr_dict(std::string& out, const Dict& dict) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, key);
    out += ": ";
    append_repr(out, value);
  }
  out += '}';
}

void append_repr(std::string& out, const Value& v) {
  if (v.is_str()) {
    out += v.str().safe ? "Markup(" + repr_str(v.text()) + ")" : repr_str(v.text());
  } else if (v.is_sequence()) {
    const auto& s = v.sequence();
    out += s.tuple ? '(' : '[';
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i) out += ", ";
      append_repr(out, s.items[i]);
    }
    if (s.tuple && s.items.size() == 1) out += ',';
    out += s.tuple ? ')' : ']';
  } else if (v.is_dict()) {
    append_repr_dict(out, v.dict());
  } else if (v.is_undefined()) {
    out += "Undefined";
  } else if (v.is_object()) {
    out += v.object()->repr();
  } else {
    out += to_string(v);
  }
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = decode(text, pos);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
          if (c == 0x7F) {
            out += '\x7F';
          } else {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
          }
        } else if (ascii && c >= 0x10000) {
          const unsigned v = static_cast<unsigned>(c) - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
        } else {
          out += text.substr(begin, pos - begin);
        }
    }
  }
  out += '"';
}

std::string json_float(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return repr_float(d);
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& v, size_t depth) {
    if (v.is_str()) {
      append_json_string(out, v.text(), style_.ascii);
    } else if (v.is_none()) {
      out += "null";
    } else if (v.is_bool()) {
      out += v.as_bool() ? "true" : "false";
    } else if (v.is_int()) {
      out += int_to_string(v.as_int());
    } else if (v.is_float()) {
      out += json_float(v.as_float());
    } else if (v.is_sequence()) {
      out += '[';
      for (size_t i = 0; i < v.items().size(); ++i) {
        separate(i, depth + 1);
        write(v.items()[i], depth + 1);
      }
      close(v.items().size(), depth);
      out += ']';
    } else if (v.is_dict()) {
      write_dict(v.dict(), depth);
    } else {
      fail("Object of type ", type_name(v), " is not JSON serializable");
    }
  }

  std::string out;

 private:
  void write_dict(const Dict& dict, size_t depth) {
    std::vector<const Dict::Item*> order;
    for (const auto& item : dict.items()) order.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(),
                       [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
    }
    out += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      separate(i, depth + 1);
      write_key(order[i]->first);
      out += style_.key_separator;
      write(order[i]->second, depth + 1);
    }
    close(order.size(), depth);
    out += '}';
  }

  void write_key(const Value& key) {
    if (key.is_str()) {
      append_json_string(out, key.text(), style_.ascii);
    } else if (key.is_none() || key.is_number()) {
      out += '"';
      write(key, 0);
      out += '"';
    } else {
      fail("keys must be str, int, float, bool or None, not ", type_name(key));
    }
  }

  void separate(size_t index, size_t depth) {
    if (index) out += style_.item_separator;
    newline(depth);
  }

  void close(size_t count, size_t depth) {
    if (count) newline(depth);
  }

  void newline(size_t depth) {
    if (!style_.indent) return;
    out += '\n';
    for (size_t i = 0; i < depth; ++i) out += *style_.indent;
  }

  const JsonStyle& style_;
};

}  // namespace

std::string int_to_string(Int i) { return fmt::format("{}", i); }

// Python's float.__repr__: the shortest digits that read back as d; an exponent outside 1e-4 <= |d| < 1e16.
std::string repr_float(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  if (d == 0) return std::signbit(d) ? "-0.0" : "0.0";
  char buffer[64];
  const double magnitude = std::abs(d);
  const bool scientific = magnitude < 1e-4 || magnitude >= 1e16;
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto result = std::to_chars(std::begin(buffer), std::end(buffer), d, format);
  std::string text(buffer, result.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string repr_str(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = decode(text, pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(begin, pos - begin);
    } else {
      append_escape(out, c);
    }
  }
  out += quote;
  return out;
}

std::string escape_non_ascii(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = decode(text, pos);
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      append_escape(out, c);
    }
  }
  return out;
}

std::string to_string(const Value& v) {
  if (v.is_str()) return v.text();
  if (v.is_int()) return int_to_string(v.as_int());
  if (v.is_bool()) return v.as_bool() ? "True" : "False";
  if (v.is_none()) return "None";
  if (v.is_float()) return repr_float(v.as_float());
  if (v.is_undefined() || v.is_missing()) return "";
  return repr(v);
}

std::string repr(const Value& v) {
  std::string out;
  append_repr(out, v);
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string to_json(const Value& v, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(v, 0);
  return std::move(writer.out);
}

}  // namespace strata::jinja
