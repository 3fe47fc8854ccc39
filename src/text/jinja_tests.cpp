// What can follow `is`.
#include <algorithm>
#include <array>

#include "text/jinja_arguments.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_registry.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

// A test without arguments.
template <bool (*Predicate)(const Value&)>
bool plain(Interpreter&, const Value& v, Args& args) {
  const Bound bound("test", args, {});
  return Predicate(v);
}

template <char Op>
bool relation(Interpreter&, const Value& v, Args& args) {
  const Bound bound("test", args, {""}, 1);
  switch (Op) {
    case '=':
      return compare_with("==", v, bound[0]);
    case '!':
      return compare_with("!=", v, bound[0]);
    case '<':
      return compare_with("<", v, bound[0]);
    case 'l':
      return compare_with("<=", v, bound[0]);
    case '>':
      return compare_with(">", v, bound[0]);
    case 'g':
      return compare_with(">=", v, bound[0]);
    default:
      return contains(bound[0], v);
  }
}

bool remainder_is(Interpreter& rt, const Value& v, const Value& divisor, Int expected) {
  return equal(modulo(rt, v, divisor), Value(expected));
}

bool odd(Interpreter& rt, const Value& v, Args&) { return remainder_is(rt, v, Value(Int{2}), 1); }
bool even(Interpreter& rt, const Value& v, Args&) { return remainder_is(rt, v, Value(Int{2}), 0); }

bool divisible_by(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("divisibleby", args, {"num"}, 1);
  return remainder_is(rt, v, bound[0], 0);
}

bool is_cased_as(const Value& v, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  const std::string text = to_string(v);
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = decode(text, pos);
    if (other(c) || is_title(c)) return false;
    any = any || wanted(c);
  }
  return any;
}

bool is_filter(Interpreter&, const Value& v, Args&) { return v.is_str() && find_filter(v.text()); }
bool is_test(Interpreter&, const Value& v, Args&) { return v.is_str() && find_test(v.text()); }

bool same_as(Interpreter&, const Value& v, Args& args) {
  const Bound bound("sameas", args, {"other"}, 1);
  const Value& other = bound[0];
  if (v.is_bool() || other.is_bool()) return v.is_bool() && other.is_bool() && v.as_bool() == other.as_bool();
  if (v.is_sequence() && other.is_sequence()) return &v.sequence() == &other.sequence();
  if (v.is_dict() && other.is_dict()) return &v.dict() == &other.dict();
  if (v.is_object() && other.is_object()) return v.object() == other.object();
  if (v.is_undefined() || v.is_float()) return false;
  return std::string_view(type_name(v)) == type_name(other) && equal(v, other);
}

bool is_indexable(const Value& v) {
  return v.is_str() || v.is_sequence() || v.is_dict() || v.is_undefined() ||
         (v.is_object() && v.object()->subscriptable());
}

bool is_callable(const Value& v) { return v.is_undefined() || (v.is_object() && v.object()->callable()); }

constexpr auto kTests = std::to_array<Named<TestFn>>({
    {"!=", relation<'!'>},
    {"<", relation<'<'>},
    {"<=", relation<'l'>},
    {"==", relation<'='>},
    {">", relation<'>'>},
    {">=", relation<'g'>},
    {"boolean", plain<[](const Value& v) { return v.is_bool(); }>},
    {"callable", plain<is_callable>},
    {"defined", plain<[](const Value& v) { return !v.is_undefined(); }>},
    {"divisibleby", divisible_by},
    {"eq", relation<'='>},
    {"equalto", relation<'='>},
    {"escaped", plain<[](const Value& v) { return v.is_str() && v.str().safe; }>},
    {"even", even},
    {"false", plain<[](const Value& v) { return v.is_bool() && !v.as_bool(); }>},
    {"filter", is_filter},
    {"float", plain<[](const Value& v) { return v.is_float(); }>},
    {"ge", relation<'g'>},
    {"greaterthan", relation<'>'>},
    {"gt", relation<'>'>},
    {"in", relation<'i'>},
    {"integer", plain<[](const Value& v) { return v.is_int(); }>},
    {"iterable", plain<is_iterable>},
    {"le", relation<'l'>},
    {"lessthan", relation<'<'>},
    {"lower", plain<[](const Value& v) { return is_cased_as(v, is_lower, is_upper); }>},
    {"lt", relation<'<'>},
    {"mapping", plain<[](const Value& v) { return v.is_dict(); }>},
    {"ne", relation<'!'>},
    {"none", plain<[](const Value& v) { return v.is_none(); }>},
    {"number", plain<[](const Value& v) { return v.is_number(); }>},
    {"odd", odd},
    {"sameas", same_as},
    {"sequence", plain<is_indexable>},
    {"string", plain<[](const Value& v) { return v.is_str(); }>},
    {"test", is_test},
    {"true", plain<[](const Value& v) { return v.is_bool() && v.as_bool(); }>},
    {"undefined", plain<[](const Value& v) { return v.is_undefined(); }>},
    {"upper", plain<[](const Value& v) { return is_cased_as(v, is_upper, is_lower); }>},
});

}  // namespace

TestFn find_test(std::string_view name) {
  const auto* found = std::lower_bound(kTests.begin(), kTests.end(), name,
                                       [](const auto& t, std::string_view n) { return t.name < n; });
  return found != kTests.end() && found->name == name ? found->function : nullptr;
}

}  // namespace strata::jinja
