// The methods of str.
#include <algorithm>
#include <array>

#include "text/jinja_arguments.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_methods.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

// The text of an argument; a safe string escapes what it is combined with.
std::string partner(const Value& self, const Bound& bound, size_t i) {
  const std::string& text = bound.text(i);
  return self.str().safe && !bound[i].str().safe ? escape_html(text) : text;
}

Value same(Interpreter& rt, const Value& self, std::string text) {
  return rt.text(std::move(text), self.str().safe);
}

template <std::string (*Change)(std::string_view)>
Value change(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("str method", args, {});
  return same(rt, self, Change(self.text()));
}

template <bool Left, bool Right>
Value strip_method(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("strip", args, {""});
  if (!bound.has_value(0)) return same(rt, self, std::string(strip(self.text(), Left, Right)));
  const std::string_view chars = bound.text(0);
  return same(rt, self, std::string(strip(self.text(), Left, Right, &chars)));
}

template <bool FromRight>
Value split_method(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("split", args, {"sep", "maxsplit"});
  const Int limit = bound.integer(1, -1);
  rt.charge(self.text().size());
  const auto parts = bound.has_value(0) ? split(self.text(), bound.text(0), limit, FromRight)
                                        : split_space(self.text(), limit, FromRight);
  rt.allocate(self.text().size() + parts.size() * (sizeof(Value) + sizeof(Str)));
  std::vector<Value> items;
  for (const auto part : parts) items.emplace_back(std::string(part), self.str().safe);
  return Value::list(std::move(items));
}

Value splitlines(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("splitlines", args, {"keepends"});
  rt.charge(self.text().size());
  const auto lines = split_lines(self.text(), bound.truth(0, false));
  rt.allocate(self.text().size() + lines.size() * (sizeof(Value) + sizeof(Str)));
  std::vector<Value> items;
  for (const auto line : lines) items.emplace_back(std::string(line), self.str().safe);
  return Value::list(std::move(items));
}

template <bool FromRight>
Value partition(Interpreter&, const Value& self, Args& args) {
  const Bound bound("partition", args, {""}, 1);
  const std::string &text = self.text(), &separator = bound.text(0);
  if (separator.empty()) fail("empty separator");
  const bool safe = self.str().safe;
  const size_t at = FromRight ? text.rfind(separator) : text.find(separator);
  const Value none(std::string(), safe);
  if (at == text.npos) return FromRight ? Value::tuple({none, none, self}) : Value::tuple({self, none, none});
  return Value::tuple({Value(text.substr(0, at), safe), Value(separator, safe),
                       Value(text.substr(at + separator.size()), safe)});
}

Value join(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("join", args, {""}, 1);
  Iterator next = iterate(bound[0]);
  std::string out;
  size_t i = 0;
  for (Value item; next(item); ++i) {
    if (i) out += self.text();
    if (!item.is_str() && !self.str().safe) {
      fail("sequence item ", std::to_string(i), ": expected str instance, ", type_name(item), " found");
    }
    const std::string text = to_string(item);
    out += self.str().safe && !(item.is_str() && item.str().safe) ? escape_html(text) : text;
    rt.charge(text.size());
    if (out.size() > kMaxText) fail("joined text is too long");
  }
  return same(rt, self, std::move(out));
}

Value replace(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("replace", args, {"", "", ""}, 2);
  rt.charge(self.text().size());
  return same(
      rt, self,
      replace_all(self.text(), partner(self, bound, 0), partner(self, bound, 1), bound.integer(2, -1)));
}

// The part of the text between the optional arguments start and end, with where it begins in code points.
struct Window {
  std::string_view text;
  Int start;
  bool valid;  // start <= length of the text
};

Window window(const Value& self, const Bound& bound, size_t first) {
  const std::string& text = self.text();
  const Int size = static_cast<Int>(self.str().length);
  const auto clamp = [&](size_t i, Int otherwise) {
    if (!bound.has_value(i)) return otherwise;
    const Int at = require_int(bound[i]);
    return at < 0 ? std::max<Int>(0, at + size) : at;
  };
  const Int start = clamp(first, 0), end = std::min(size, clamp(first + 1, size));
  if (start > end) return {{}, start, false};
  const auto offset = [&](Int i) {
    return self.str().ascii() ? static_cast<size_t>(i) : byte_offset(text, static_cast<size_t>(i));
  };
  const size_t begin = offset(start);
  return {std::string_view(text).substr(begin, offset(end) - begin), start, true};
}

template <bool FromRight, bool MustFind>
Value find(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("find", args, {"", "", ""}, 1);
  const Window w = window(self, bound, 1);
  rt.charge(w.text.size());
  const size_t at = !w.valid    ? std::string_view::npos
                    : FromRight ? w.text.rfind(bound.text(0))
                                : w.text.find(bound.text(0));
  if (at == w.text.npos) {
    if (MustFind) fail("substring not found");
    return Value(Int{-1});
  }
  return Value(w.start + static_cast<Int>(count_code_points(w.text.substr(0, at))));
}

Value count(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("count", args, {"", "", ""}, 1);
  const Window w = window(self, bound, 1);
  const std::string& what = bound.text(0);
  rt.charge(w.text.size());
  if (!w.valid) return Value(Int{0});
  if (what.empty()) return Value(static_cast<Int>(count_code_points(w.text)) + 1);
  Int n = 0;
  for (size_t at = w.text.find(what); at != w.text.npos; at = w.text.find(what, at + what.size())) ++n;
  return Value(n);
}

template <bool AtEnd>
Value starts_or_ends(Interpreter&, const Value& self, Args& args) {
  const Bound bound(AtEnd ? "endswith" : "startswith", args, {"", "", ""}, 1);
  const Window w = window(self, bound, 1);
  const auto matches = [&w](const std::string& affix) {
    return w.valid && (AtEnd ? w.text.ends_with(affix) : w.text.starts_with(affix));
  };
  if (!bound[0].is_sequence() || !bound[0].sequence().tuple) return Value(matches(bound.text(0)));
  for (const Value& affix : bound[0].items()) {
    if (!affix.is_str()) fail("tuple for startswith must only contain str, not ", type_name(affix));
    if (matches(affix.text())) return Value(true);
  }
  return Value(false);
}

Value remove_prefix(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("removeprefix", args, {""}, 1);
  return same(
      rt, self,
      self.text().starts_with(bound.text(0)) ? self.text().substr(bound.text(0).size()) : self.text());
}

Value remove_suffix(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("removesuffix", args, {""}, 1);
  const auto& text = self.text();
  return same(rt, self,
              text.ends_with(bound.text(0)) ? text.substr(0, text.size() - bound.text(0).size()) : text);
}

template <char Align>
Value justify(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("justify", args, {"", ""}, 1);
  const std::string fill = bound.has(1) ? partner(self, bound, 1) : " ";
  if (count_code_points(fill) != 1) fail("The fill character must be exactly one character long");
  return same(rt, self, justify_text(self.text(), require_int(bound[0]), Align, fill));
}

Value zfill(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("zfill", args, {""}, 1);
  const std::string& text = self.text();
  const bool has_sign = text.starts_with("+") || text.starts_with("-");
  const Int width = require_int(bound[0]) - (has_sign ? 1 : 0);
  return same(
      rt, self,
      text.substr(0, has_sign ? 1 : 0) + justify_text(text.substr(has_sign ? 1 : 0), width, '>', "0"));
}

Value expandtabs(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("expandtabs", args, {"tabsize"});
  const Int size = bound.integer(0, 8);
  if (size > 1000) fail("tab size is too large");
  std::string out;
  Int column = 0;
  for (const auto c : split_code_points(self.text())) {
    if (c == "\t") {
      const Int blanks = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else {
      out += c;
      column = c == "\n" || c == "\r" ? 0 : column + 1;
    }
  }
  return same(rt, self, std::move(out));
}

Value format(Interpreter& rt, const Value& self, Args& args) {
  return same(rt, self, format_braces(self, args));
}

Value format_map(Interpreter& rt, const Value& self, Args& args) {
  const Bound bound("format_map", args, {""}, 1);
  if (!bound[0].is_dict()) fail("format_map() argument must be a mapping");
  Args named;
  for (const auto& [key, value] : bound[0].dict().items()) {
    if (key.is_str()) named.named.emplace_back(key.text(), value);
  }
  return same(rt, self, format_braces(self, named));
}

template <bool (*Predicate)(char32_t)>
Value all_are(Interpreter&, const Value& self, Args& args) {
  const Bound bound("str method", args, {});
  const std::string& text = self.text();
  if (text.empty()) return Value(false);
  for (size_t pos = 0; pos < text.size();) {
    if (!Predicate(decode(text, pos))) return Value(false);
  }
  return Value(true);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

Value is_ascii(Interpreter&, const Value& self, Args& args) {
  const Bound bound("isascii", args, {});
  return Value(self.str().ascii());
}

Value is_printable_text(Interpreter& rt, const Value& self, Args& args) {
  return self.text().empty() ? Value(true) : all_are<is_printable>(rt, self, args);
}

Value is_identifier(Interpreter& rt, const Value& self, Args& args) {
  size_t pos = 0;
  if (self.text().empty() || !is_identifier_start(decode(self.text(), pos))) return Value(false);
  return all_are<is_identifier_part>(rt, self, args);
}

// islower / isupper: some cased character, and none of another case.
template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Value is_case(Interpreter&, const Value& self, Args& args) {
  const Bound bound("str method", args, {});
  bool any = false;
  for (size_t pos = 0; pos < self.text().size();) {
    const char32_t c = decode(self.text(), pos);
    if (Other(c) || jinja::is_title(c)) return Value(false);
    any = any || Wanted(c);
  }
  return Value(any);
}

Value is_title_text(Interpreter&, const Value& self, Args& args) {
  const Bound bound("istitle", args, {});
  bool any = false, previous_cased = false;
  for (size_t pos = 0; pos < self.text().size();) {
    const char32_t c = decode(self.text(), pos);
    const bool upper = is_upper(c) || jinja::is_title(c), lower = is_lower(c);
    if ((upper && previous_cased) || (lower && !previous_cased)) return Value(false);
    previous_cased = upper || lower;
    any = any || previous_cased;
  }
  return Value(any);
}

}  // namespace

const std::vector<Named<MethodFn>>& str_methods() {
  static const std::vector<Named<MethodFn>> methods = {
      {"capitalize", change<capitalize>},
      {"casefold", change<to_casefold>},
      {"center", justify<'^'>},
      {"count", count},
      {"endswith", starts_or_ends<true>},
      {"expandtabs", expandtabs},
      {"find", find<false, false>},
      {"format", format},
      {"format_map", format_map},
      {"index", find<false, true>},
      {"isalnum", all_are<is_alnum>},
      {"isalpha", all_are<is_alpha>},
      {"isascii", is_ascii},
      {"isdecimal", all_are<is_decimal>},
      {"isdigit", all_are<is_digit>},
      {"isidentifier", is_identifier},
      {"islower", is_case<is_lower, is_upper>},
      {"isnumeric", all_are<is_numeric>},
      {"isprintable", is_printable_text},
      {"isspace", all_are<is_space>},
      {"istitle", is_title_text},
      {"isupper", is_case<is_upper, is_lower>},
      {"join", join},
      {"ljust", justify<'<'>},
      {"lower", change<to_lower>},
      {"lstrip", strip_method<true, false>},
      {"partition", partition<false>},
      {"removeprefix", remove_prefix},
      {"removesuffix", remove_suffix},
      {"replace", replace},
      {"rfind", find<true, false>},
      {"rindex", find<true, true>},
      {"rjust", justify<'>'>},
      {"rpartition", partition<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"splitlines", splitlines},
      {"startswith", starts_or_ends<false>},
      {"strip", strip_method<true, true>},
      {"swapcase", change<swap_case>},
      {"title", change<title_case>},
      {"upper", change<to_upper>},
      {"zfill", zfill},
  };
  return methods;
}

}  // namespace strata::jinja
