// The methods of list, tuple, dict, int and float, and the lookup of all methods.
#include "text/jinja_methods.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_arguments.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"

namespace strata::jinja {
namespace {

template <DictView::Part Part>
Value view(Interpreter&, const Value& self, Args& args) {
  const Bound bound("dict method", args, {});
  return Value(ObjectPtr(std::make_shared<DictView>(self.dict_ptr(), Part)));
}

Value dict_get(Interpreter&, const Value& self, Args& args) {
  const Bound bound("get", args, {"", ""}, 1);
  const Value* found = self.dict().find(bound[0]);
  return found ? *found : bound.get(1, Value(None{}));
}

Value copy(Interpreter&, const Value& self, Args& args) {
  const Bound bound("copy", args, {});
  return self.is_dict() ? Value(DictPtr(std::make_shared<const Dict>(self.dict())))
                        : Value::list(self.items());
}

Value index_of(Interpreter&, const Value& self, Args& args) {
  const Bound bound("index", args, {"", "", ""}, 1);
  const auto& items = self.items();
  const Int size = static_cast<Int>(items.size());
  const auto clamp = [&](size_t i, Int otherwise) {
    const Int at = bound.integer(i, otherwise);
    return std::clamp<Int>(at < 0 ? at + size : at, 0, size);
  };
  const Int end = clamp(2, size);
  for (Int i = clamp(1, 0); i < end; ++i) {
    if (equal(items[static_cast<size_t>(i)], bound[0])) return Value(i);
  }
  fail(repr(bound[0]), " is not in ", type_name(self));
}

Value count_of(Interpreter&, const Value& self, Args& args) {
  const Bound bound("count", args, {""}, 1);
  return Value(static_cast<Int>(std::count_if(self.items().begin(), self.items().end(),
                                              [&](const Value& v) { return equal(v, bound[0]); })));
}

Value is_integer(Interpreter&, const Value& self, Args& args) {
  const Bound bound("is_integer", args, {});
  const double d = self.as_float();
  return Value(std::isfinite(d) && d == std::floor(d));
}

Value bit_length(Interpreter&, const Value& self, Args& args) {
  const Bound bound("bit_length", args, {});
  Int bits = 0;
  for (Int rest = self.as_int() < 0 ? -self.as_int() : self.as_int(); rest; rest >>= 1) ++bits;
  return Value(bits);
}

using Table = std::vector<Named<MethodFn>>;

const Table& methods_of(const Value& self) {
  static const Table none;
  static const Table list = {{"copy", copy}, {"count", count_of}, {"index", index_of}};
  static const Table tuple = {{"count", count_of}, {"index", index_of}};
  static const Table dict = {
      {"copy", copy},
      {"get", dict_get},
      {"items", view<DictView::Part::kItems>},
      {"keys", view<DictView::Part::kKeys>},
      {"values", view<DictView::Part::kValues>},
  };
  static const Table integer = {{"bit_length", bit_length}};
  static const Table real = {{"is_integer", is_integer}};
  if (self.is_str()) return str_methods();
  if (self.is_dict()) return dict;
  if (self.is_sequence()) return self.sequence().tuple ? tuple : list;
  if (self.is_integral()) return integer;
  return self.is_float() ? real : none;
}

}  // namespace

MethodFn find_method(const Value& self, std::string_view name) {
  const Table& table = methods_of(self);
  const auto found = std::lower_bound(table.begin(), table.end(), name,
                                      [](const auto& m, std::string_view n) { return m.name < n; });
  return found != table.end() && found->name == name ? found->function : nullptr;
}

bool is_mutating_method(const Value& self, std::string_view name) {
  const auto in = [name](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (self.is_dict()) return in({"clear", "pop", "popitem", "setdefault", "update"});
  if (!self.is_sequence() || self.sequence().tuple) return false;
  return in({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
}

}  // namespace strata::jinja
