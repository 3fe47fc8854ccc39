// Lookup by name of what templates can use: filters, tests, methods of values, global functions.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace strata::jinja {

using MethodFn = Value (*)(Interpreter&, const Value& self, Args&);

template <typename Fn>
struct Named {
  std::string_view name;
  Fn function;
};

// Null if there is none of that name.
FilterFn find_filter(std::string_view name);
TestFn find_test(std::string_view name);
MethodFn find_method(const Value& self, std::string_view name);

// Methods that would change a list or dict; templates may see but not call them.
bool is_mutating_method(const Value& self, std::string_view name);

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now; missing if there is none.
Value find_global(std::string_view name);

}  // namespace strata::jinja
