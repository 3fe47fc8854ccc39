// Binding the arguments of a call to parameters, as Python does.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace strata::jinja {

// Arguments by position in the parameter list; what was not given is missing. Fails on too many, unknown or
// repeated arguments and when one of the first `required` is not there. A parameter named "" is positional
// only.
class Bound {
 public:
  Bound(std::string_view function, Args& args, std::initializer_list<std::string_view> names,
        size_t required = 0);

  bool has(size_t i) const { return !values_[i].is_missing(); }
  const Value& operator[](size_t i) const { return values_[i]; }
  Value get(size_t i, Value otherwise) const { return has(i) ? values_[i] : std::move(otherwise); }
  bool truth(size_t i, bool otherwise) const { return has(i) ? jinja::truth(values_[i]) : otherwise; }
  // Fail if the argument has another type. `none` tells whether None stands for the default.
  const std::string& text(size_t i) const;
  Int integer(size_t i, Int otherwise) const;
  bool has_value(size_t i) const { return has(i) && !values_[i].is_none(); }

 private:
  std::string function_;
  std::vector<Value> values_;
};

// An integer small enough to count with; fails otherwise.
int64_t to_int64(Int i);
// The integral value's integer; fails with "'x' object cannot be interpreted as an integer".
Int require_int(const Value& v);

}  // namespace strata::jinja
