// Filters on text.
#include <algorithm>
#include <array>

#include "text/jinja_arguments.h"
#include "text/jinja_filters.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

// str(v), keeping what is marked safe.
Value soft_str(Interpreter& rt, const Value& v) { return v.is_str() ? v : rt.text(to_string(v)); }

template <std::string (*Change)(std::string_view)>
Value change(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("filter", args, {});
  const Value text = soft_str(rt, v);
  return rt.text(Change(text.text()), text.str().safe);
}

// do_title of jinja2/filters.py: words begin after white space and - ( { [ <.
std::string title_words(std::string_view text) {
  std::string out;
  std::string word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t end = 0;
    decode(word, end);
    out += to_upper(word.substr(0, end)) + to_lower(word.substr(end));
    word.clear();
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = decode(text, pos);
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      out += text.substr(begin, pos - begin);
    } else {
      word += text.substr(begin, pos - begin);
    }
  }
  flush();
  return out;
}

Value string_filter(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("string", args, {});
  return soft_str(rt, v);
}

Value trim(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("trim", args, {"chars"});
  const Value text = soft_str(rt, v);
  std::string_view chars;
  if (bound.has_value(0)) chars = bound.text(0);
  return rt.text(std::string(strip(text.text(), true, true, bound.has_value(0) ? &chars : nullptr)),
                 text.str().safe);
}

Value replace(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  const Int limit = bound.has_value(2) ? require_int(bound[2]) : Int{-1};
  const std::string text = to_string(v);
  rt.charge(text.size());
  return rt.text(replace_all(text, to_string(bound[0]), to_string(bound[1]), limit));
}

Value indent(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  std::string blanks;
  if (bound.has(0) && bound[0].is_str()) {
    blanks = bound[0].text();
  } else {
    const Int width = bound.integer(0, 4);
    if (width > 10000) fail("indent is too large");
    blanks.assign(static_cast<size_t>(std::max<Int>(width, 0)), ' ');
  }
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_str()) fail("unsupported operand type(s) for +=: '", type_name(v), "' and 'str'");
  const std::string text = v.text() + "\n";
  const auto lines = split_lines(text, false);
  if (text.size() + lines.size() * blanks.size() > kMaxText) fail("indented text is too long");
  std::string out = bound.truth(1, false) ? blanks : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i) out += "\n";
    if (i && (!lines[i].empty() || bound.truth(2, false))) out += blanks;
    out += lines[i];
  }
  return rt.text(std::move(out), v.str().safe);
}

Value truncate(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const Int length = bound.integer(0, 255);
  const std::string end = bound.has(2) ? bound.text(2) : "...";
  const Int end_length = static_cast<Int>(count_code_points(end));
  const Int leeway = bound.has_value(3) ? require_int(bound[3]) : Int{5};
  if (length < end_length)
    fail("expected length >= ", int_to_string(end_length), ", got ", int_to_string(length));
  if (leeway < 0) fail("expected leeway >= 0, got ", int_to_string(leeway));
  if (v.is_undefined()) return v;
  const auto size = jinja::length(v);
  if (!size) fail("object of type '", type_name(v), "' has no len()");
  if (static_cast<Int>(*size) <= length + leeway) return v;
  if (!v.is_str()) fail("'", type_name(v), "' object is not text");
  const std::string cut = v.text().substr(0, byte_offset(v.text(), static_cast<size_t>(length - end_length)));
  if (bound.truth(1, false)) return rt.text(cut + end, v.str().safe);
  return rt.text(cut.substr(0, cut.rfind(' ')) + end, v.str().safe);
}

Value center(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("center", args, {"width"});
  const Value text = soft_str(rt, v);
  return rt.text(justify_text(text.text(), bound.integer(0, 80), '^', " "), text.str().safe);
}

Value wordcount(Interpreter&, const Value& v, Args& args) {
  const Bound bound("wordcount", args, {});
  const std::string text = to_string(v);
  Int words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = decode(text, pos);
    const bool part = c == '_' || is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c);
    if (part && !inside) ++words;
    inside = part;
  }
  return Value(words);
}

Value format(Interpreter& rt, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.named.empty())
    fail("can't handle positional and keyword arguments at the same time");
  const Value text = soft_str(rt, v);
  if (args.named.empty()) return modulo(rt, text, Value::tuple(std::move(args.positional)));
  auto named = std::make_shared<Dict>();
  for (auto& [key, value] : args.named) named->set(Value(key), std::move(value));
  return modulo(rt, text, Value(DictPtr(std::move(named))));
}

Value safe(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("safe", args, {});
  return rt.text(to_string(v), true);
}

Value escape(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("escape", args, {});
  if (v.is_str() && v.str().safe) return v;
  return rt.text(escape_html(to_string(v)), true);
}

Value force_escape(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("forceescape", args, {});
  return rt.text(escape_html(to_string(v)), true);
}

bool is_url_safe(unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '~'; }

std::string quote_url(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_url_safe(byte) || (c == '/' && !query)) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

Value urlencode(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("urlencode", args, {});
  if (v.is_str() || !is_iterable(v)) return rt.text(quote_url(to_string(v), false));
  std::string out;
  const auto pair = [&out](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += quote_url(to_string(key), true) + "=" + quote_url(to_string(value), true);
  };
  if (v.is_dict()) {
    for (const auto& [key, value] : v.dict().items()) pair(key, value);
  } else {
    for (const Value& item : to_vector(v)) {
      const auto parts = to_vector(item);
      if (parts.size() != 2) fail("urlencode needs pairs");
      pair(parts[0], parts[1]);
    }
  }
  return rt.text(std::move(out));
}

}  // namespace

const std::vector<Named<FilterFn>>& text_filters() {
  static const std::vector<Named<FilterFn>> filters = {
      {"capitalize", change<capitalize>},
      {"center", center},
      {"e", escape},
      {"escape", escape},
      {"forceescape", force_escape},
      {"format", format},
      {"indent", indent},
      {"lower", change<to_lower>},
      {"replace", replace},
      {"safe", safe},
      {"string", string_filter},
      {"title", change<title_words>},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", change<to_upper>},
      {"urlencode", urlencode},
      {"wordcount", wordcount},
  };
  return filters;
}

}  // namespace strata::jinja
