// Arithmetic, comparison, membership and slicing.
#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_arguments.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

[[noreturn]] void unsupported(const char* op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail(a.undefined_message());
  if (b.is_undefined()) fail(b.undefined_message());
  fail("unsupported operand type(s) for ", op, ": '", type_name(a), "' and '", type_name(b), "'");
}

[[noreturn]] void overflow() { fail("integer is too large"); }

// Both numbers; at least one a float.
bool floating(const Value& a, const Value& b) {
  return a.is_number() && b.is_number() && (a.is_float() || b.is_float());
}
bool integral(const Value& a, const Value& b) { return a.is_integral() && b.is_integral(); }

Value repeat(Interpreter& rt, const Value& v, Int times) {
  const Int count = std::max<Int>(times, 0);
  const Int size =
      v.is_str() ? static_cast<Int>(v.text().size()) : static_cast<Int>(v.items().size() * sizeof(Value));
  if (size == 0 || count == 0)
    return v.is_str()           ? Value(std::string(), v.str().safe)
           : v.sequence().tuple ? Value::tuple({})
                                : Value::list({});
  if (count > (Int{1} << 40) / size) fail("repetition is too large");
  rt.allocate(static_cast<size_t>(size * count));
  if (v.is_str()) {
    std::string out;
    out.reserve(static_cast<size_t>(size * count));
    for (Int i = 0; i < count; ++i) out += v.text();
    return Value(std::move(out), v.str().safe);
  }
  std::vector<Value> out;
  for (Int i = 0; i < count; ++i) out.insert(out.end(), v.items().begin(), v.items().end());
  return v.sequence().tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

Int floor_mod(Int a, Int b) {
  const Int r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double float_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0) {
    if ((b < 0) != (r < 0)) r += b;
  } else {
    r = std::copysign(0.0, b);
  }
  return r;
}

bool is_repeatable(const Value& v) { return v.is_str() || v.is_sequence(); }

}  // namespace

Value add(Interpreter& rt, const Value& a, const Value& b) {
  if (a.is_str() && b.is_str()) {
    if (!a.str().safe && !b.str().safe) return rt.text(a.text() + b.text());
    const auto escaped = [](const Value& v) { return v.str().safe ? v.text() : escape_html(v.text()); };
    return rt.text(escaped(a) + escaped(b), true);
  }
  if (integral(a, b)) {
    Int sum;
    if (__builtin_add_overflow(a.as_int(), b.as_int(), &sum)) overflow();
    return Value(sum);
  }
  if (floating(a, b)) return Value(a.as_float() + b.as_float());
  if (a.is_sequence() && b.is_sequence() && a.sequence().tuple == b.sequence().tuple) {
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    rt.allocate(items.size() * sizeof(Value));
    return a.sequence().tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  if (a.is_str() && !b.is_undefined()) fail("can only concatenate str (not \"", type_name(b), "\") to str");
  if (a.is_sequence() && !b.is_undefined()) {
    fail("can only concatenate ", type_name(a), " (not \"", type_name(b), "\") to ", type_name(a));
  }
  unsupported("+", a, b);
}

Value subtract(const Value& a, const Value& b) {
  if (integral(a, b)) {
    Int difference;
    if (__builtin_sub_overflow(a.as_int(), b.as_int(), &difference)) overflow();
    return Value(difference);
  }
  if (floating(a, b)) return Value(a.as_float() - b.as_float());
  unsupported("-", a, b);
}

Value multiply(Interpreter& rt, const Value& a, const Value& b) {
  if (integral(a, b)) {
    Int product;
    if (__builtin_mul_overflow(a.as_int(), b.as_int(), &product)) overflow();
    return Value(product);
  }
  if (floating(a, b)) return Value(a.as_float() * b.as_float());
  if (is_repeatable(a) && b.is_integral()) return repeat(rt, a, b.as_int());
  if (a.is_integral() && is_repeatable(b)) return repeat(rt, b, a.as_int());
  unsupported("*", a, b);
}

Value divide(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) unsupported("/", a, b);
  if (b.as_float() == 0) fail(floating(a, b) ? "float division by zero" : "division by zero");
  if (floating(a, b)) return Value(a.as_float() / b.as_float());
  return Value(
      static_cast<double>(static_cast<long double>(a.as_int()) / static_cast<long double>(b.as_int())));
}

Value floor_divide(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) unsupported("//", a, b);
  if (b.as_float() == 0) fail("integer division or modulo by zero");
  if (integral(a, b)) {
    const Int x = a.as_int(), y = b.as_int();
    if (y == -1) return negate(a);
    return Value((x - floor_mod(x, y)) / y);
  }
  // float_floor_div of CPython's floatobject.c.
  const double x = a.as_float(), y = b.as_float();
  const double quotient = (x - float_mod(x, y)) / y;
  if (quotient == 0) return Value(std::copysign(0.0, x / y));
  const double floored = std::floor(quotient);
  return Value(quotient - floored > 0.5 ? floored + 1 : floored);
}

Value modulo(Interpreter& rt, const Value& a, const Value& b) {
  if (a.is_str()) return rt.text(format_percent(a, b), a.str().safe);
  if (!a.is_number() || !b.is_number()) unsupported("%", a, b);
  if (b.as_float() == 0) fail("integer division or modulo by zero");
  if (integral(a, b)) return Value(b.as_int() == -1 ? Int{0} : floor_mod(a.as_int(), b.as_int()));
  return Value(float_mod(a.as_float(), b.as_float()));
}

Value power(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) unsupported("** or pow()", a, b);
  if (integral(a, b) && b.as_int() >= 0) {
    Int result = 1, base = a.as_int(), exponent = b.as_int();
    while (true) {
      if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow();
      exponent >>= 1;
      if (exponent == 0) return Value(result);
      if (base == 0 || base == 1) return Value(exponent > 0 && base == 0 ? Int{0} : result);
      if (__builtin_mul_overflow(base, base, &base)) overflow();
    }
  }
  const double x = a.as_float(), y = b.as_float();
  if (x == 0 && y < 0) fail("0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(y) && y != std::floor(y))
    fail("a negative number to a fractional power is not a real number");
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) fail("Numerical result out of range");
  return Value(result);
}

Value negate(const Value& v) {
  if (v.is_float()) return Value(-v.as_float());
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_integral()) fail("bad operand type for unary -: '", type_name(v), "'");
  Int result;
  if (__builtin_sub_overflow(Int{0}, v.as_int(), &result)) overflow();
  return Value(result);
}

Value plus(const Value& v) {
  if (v.is_float()) return v;
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_integral()) fail("bad operand type for unary +: '", type_name(v), "'");
  return Value(v.as_int());
}

bool contains(const Value& container, const Value& item) {
  if (container.is_str()) {
    if (item.is_undefined()) fail("'in <string>' requires string as left operand, not Undefined");
    if (!item.is_str()) fail("'in <string>' requires string as left operand, not ", type_name(item));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item) != nullptr;
  if (container.is_sequence()) {
    return std::any_of(container.items().begin(), container.items().end(),
                       [&item](const Value& v) { return equal(v, item); });
  }
  if (!is_iterable(container)) fail("argument of type '", type_name(container), "' is not iterable");
  Iterator next = iterate(container);
  for (Value v; next(v);) {
    if (equal(v, item)) return true;
  }
  return false;
}

bool compare_with(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  const auto is_nan = [](const Value& v) { return v.is_float() && std::isnan(v.as_float()); };
  const int order = compare(a, b, op.c_str());
  if (is_nan(a) || is_nan(b)) return false;
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

Value get_slice(Interpreter& rt, const Value& obj, const Value& start, const Value& stop, const Value& step) {
  if (obj.is_undefined()) fail(obj.undefined_message());
  const auto* range = obj.object_as<Range>();
  if (!obj.is_str() && !obj.is_sequence() && !range) {
    fail(obj.is_dict() ? "unhashable type: 'slice'"
                       : std::string("'") + type_name(obj) + "' object is not subscriptable");
  }
  const auto given = [](const Value& v) { return !v.is_missing() && !v.is_none(); };
  const auto index = [](const Value& v) {
    if (!v.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
    return v.as_int();
  };
  const Int size = static_cast<Int>(*length(obj));
  const Int by = given(step) ? index(step) : Int{1};
  if (by == 0) fail("slice step cannot be zero");
  const Int lowest = by < 0 ? -1 : 0, highest = by < 0 ? size - 1 : size;
  const auto clamp = [&](const Value& v, Int otherwise) {
    if (!given(v)) return otherwise;
    const Int i = index(v);
    return std::clamp(i < 0 ? i + size : i, lowest, highest);
  };
  const Int first = clamp(start, by < 0 ? highest : lowest), last = clamp(stop, by < 0 ? lowest : highest);
  const Int count = by > 0 ? (last > first ? (last - first - 1) / by + 1 : 0)
                           : (first > last ? (first - last - 1) / -by + 1 : 0);
  if (range) {
    return Value(ObjectPtr(std::make_shared<Range>(range->start + first * range->step,
                                                   range->start + last * range->step, range->step * by)));
  }
  if (obj.is_str()) {
    const std::string& text = obj.text();
    rt.charge(text.size());
    if (by == 1) {
      const auto at = [&](Int i) {
        return obj.str().ascii() ? static_cast<size_t>(i) : byte_offset(text, static_cast<size_t>(i));
      };
      if (count == 0) return Value(std::string(), obj.str().safe);
      const size_t begin = at(first);
      return Value(text.substr(begin, at(first + count) - begin), obj.str().safe);
    }
    const auto characters = split_code_points(text);
    std::string out;
    for (Int i = 0; i < count; ++i) out += characters[static_cast<size_t>(first + i * by)];
    return Value(std::move(out), obj.str().safe);
  }
  std::vector<Value> out;
  for (Int i = 0; i < count; ++i) out.push_back(obj.items()[static_cast<size_t>(first + i * by)]);
  rt.allocate(out.size() * sizeof(Value));
  return obj.sequence().tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

}  // namespace strata::jinja
