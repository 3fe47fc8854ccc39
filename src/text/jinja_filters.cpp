// Filters on numbers, on any value, and on dicts; and the lookup of all filters.
#include "text/jinja_filters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/jinja_arguments.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

Value default_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("default", args, {"default_value", "boolean"});
  const bool absent = v.is_undefined() || (bound.truth(1, false) && !truth(v));
  return absent ? bound.get(0, Value(std::string())) : v;
}

Value tojson(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.has_value(1)) {
    const Value& indent = bound[1];
    if (indent.is_str()) {
      style.indent = indent.text();
    } else {
      const Int blanks = std::max<Int>(0, require_int(indent));
      if (blanks > 1000) fail("indent is too large");
      style.indent = std::string(static_cast<size_t>(blanks), ' ');
    }
    style.item_separator = ",";
  }
  if (bound.has_value(2)) {
    const auto separators = to_vector(bound[2]);
    if (separators.size() != 2 || !separators[0].is_str() || !separators[1].is_str())
      fail("separators must be two strings");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return rt.text(to_json(v, style));
}

Value length_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("length", args, {});
  const auto size = length(v);
  if (!size) fail("object of type '", type_name(v), "' has no len()");
  return Value(static_cast<Int>(*size));
}

Value abs_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("abs", args, {});
  if (v.is_float()) return Value(std::abs(v.as_float()));
  if (!v.is_integral()) fail("bad operand type for abs(): '", type_name(v), "'");
  return v.as_int() < 0 ? negate(v) : Value(v.as_int());
}

// The digits of a Python number literal: white space around and single underscores between digits are fine.
std::optional<std::string> clean_number(std::string_view text) {
  text = strip(text, true, true);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (text[i] == '_') {
      if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return std::nullopt;
    } else {
      out += text[i];
    }
  }
  if (out.empty()) return std::nullopt;
  return out;
}

std::optional<Int> parse_int(std::string_view text, Int base) {
  const auto cleaned = clean_number(text);
  if (!cleaned || base < 0 || base == 1 || base > 36) return std::nullopt;
  std::string_view digits = *cleaned;
  const bool negative = digits[0] == '-';
  if (negative || digits[0] == '+') digits.remove_prefix(1);
  const auto prefix = [&digits](char letter) {
    return digits.size() > 1 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  for (const auto& [letter, value] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!prefix(letter) || (base != value && base != 0)) continue;
    base = value;
    digits.remove_prefix(2);
    break;
  }
  if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos)
      return std::nullopt;
    base = 10;
  }
  if (digits.empty()) return std::nullopt;
  Int value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, Int{digit}, &value))
      fail("integer is too large");
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  const auto cleaned = clean_number(text);
  if (!cleaned) return std::nullopt;
  const std::string lower = to_lower(*cleaned);
  const std::string_view magnitude =
      std::string_view(lower).substr(lower[0] == '+' || lower[0] == '-' ? 1 : 0);
  const bool named = magnitude == "inf" || magnitude == "infinity" || magnitude == "nan";
  if (!named && magnitude.find_first_not_of("0123456789.e+-") != magnitude.npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size()) return std::nullopt;
  return value;
}

Int truncate(double d) {
  if (std::abs(d) >= 1.7e38) fail("integer is too large");
  return static_cast<Int>(d);
}

Value int_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("int", args, {"default", "base"});
  const Value otherwise = bound.get(0, Value(Int{0}));
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_integral()) return Value(v.as_int());
  if (v.is_float()) {
    if (std::isinf(v.as_float())) fail("cannot convert float infinity to integer");
    return std::isnan(v.as_float()) ? otherwise : Value(truncate(v.as_float()));
  }
  if (!v.is_str()) return otherwise;
  if (const auto value = parse_int(v.text(), bound.integer(1, 10))) return Value(*value);
  const auto real = parse_float(v.text());
  return real && std::isfinite(*real) ? Value(truncate(*real)) : otherwise;
}

Value float_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("float", args, {"default"});
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_number()) return Value(v.as_float());
  const auto value = v.is_str() ? parse_float(v.text()) : std::nullopt;
  return value ? Value(*value) : bound.get(0, Value(0.0));
}

// Python's round(): to even on exact ties, of the exact binary value.
double round_float(double d, int digits) {
  if (!std::isfinite(d)) return d;
  if (digits > 22) return d;
  if (digits >= 0) {
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, d);
    return std::strtod(buffer, nullptr);
  }
  const double scale = std::pow(10.0, -digits);
  return std::nearbyint(d / scale) * scale;
}

Int round_int(Int value, Int digits) {
  if (digits >= 0) return value;
  if (digits < -37) return 0;
  Int scale = 1;
  for (Int i = 0; i < -digits; ++i) scale *= 10;
  Int down = value / scale * scale;
  if (value % scale < 0) down -= scale;
  const Int twice = 2 * (value - down);
  const bool up = twice > scale || (twice == scale && (down / scale) % 2 != 0);
  return up ? down + scale : down;
}

Value round_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("round", args, {"precision", "method"});
  const std::string method = bound.has(1) ? bound.text(1) : "common";
  const Int precision = bound.integer(0, 0);
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  if (!v.is_number()) fail("type ", type_name(v), " doesn't define __round__ method");
  if (method == "common") {
    if (v.is_integral()) return Value(round_int(v.as_int(), precision));
    return Value(round_float(v.as_float(), static_cast<int>(std::clamp<Int>(precision, -400, 400))));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = v.as_float() * scale;
  if (!std::isfinite(scaled)) fail("cannot convert float infinity or NaN to integer");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value items_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("items", args, {});
  if (v.is_undefined()) return make_generator([](Value&) { return false; }, v);
  if (!v.is_dict()) {
    // As a generator does, complain when the first item is asked for.
    return make_generator([](Value&) -> bool { fail("Can only get item pairs from a mapping."); }, v);
  }
  return make_generator(
      [d = v.dict_ptr(), i = size_t{0}](Value& out) mutable {
        if (i >= d->size()) return false;
        out = Value::tuple({d->items()[i].first, d->items()[i].second});
        ++i;
        return true;
      },
      v);
}

Value dictsort(Interpreter&, const Value& v, Args& args) {
  const Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (!v.is_dict()) fail("'", type_name(v), "' object has no attribute 'items'");
  const bool case_sensitive = bound.truth(0, false), reverse = bound.truth(2, false);
  std::vector<std::pair<Value, Value>> keyed;  // sort key, (key, value)
  for (const auto& [key, value] : v.dict().items()) {
    const Value& k = by == "key" ? key : value;
    keyed.emplace_back(k.is_str() && !case_sensitive ? Value(to_lower(k.text())) : k,
                       Value::tuple({key, value}));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return Value::list(std::move(out));
}

Value attr(Interpreter&, const Value& v, Args& args) {
  const Bound bound("attr", args, {"name"}, 1);
  const std::string& name = bound.text(0);
  // Unlike a dot, it does not fall back to the element of that name.
  if (v.is_dict() && !find_method(v, name) && !is_mutating_method(v, name)) {
    return Value::undefined("'dict object' has no attribute '" + name + "'");
  }
  return get_attribute(v, name);
}

Value filesizeformat(Interpreter&, const Value& v, Args& args) {
  const Bound bound("filesizeformat", args, {"binary"});
  const bool binary = bound.truth(0, false);
  const auto parsed = v.is_number() ? std::optional(v.as_float())
                      : v.is_str()  ? parse_float(v.text())
                                    : std::nullopt;
  if (!parsed) fail("could not convert to float: ", repr(v));
  const double bytes = *parsed, base = binary ? 1024 : 1000;
  if (bytes == 1) return Value(std::string("1 Byte"));
  if (bytes < base) return Value(int_to_string(truncate(bytes)) + " Bytes");
  double unit = base;
  const std::string prefixes = binary ? "KMGTPEZY" : "kMGTPEZY";
  for (size_t i = 0;; ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == prefixes.size()) {
      return Value(format_float(base * bytes / unit, 1, 'f', false) + " " + prefixes[i] +
                   (binary ? "iB" : "B"));
    }
  }
}

}  // namespace

const std::vector<Named<FilterFn>>& value_filters() {
  static const std::vector<Named<FilterFn>> filters = {
      {"abs", abs_filter},
      {"attr", attr},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort},
      {"filesizeformat", filesizeformat},
      {"float", float_filter},
      {"int", int_filter},
      {"items", items_filter},
      {"length", length_filter},
      {"round", round_filter},
      {"tojson", tojson},
  };
  return filters;
}

FilterFn find_filter(std::string_view name) {
  for (const auto* table : {&text_filters(), &sequence_filters(), &value_filters()}) {
    for (const auto& filter : *table) {
      if (filter.name == name) return filter.function;
    }
  }
  return nullptr;
}

}  // namespace strata::jinja
