// Binding arguments to parameters.
#include "text/jinja_arguments.h"

#include <limits>

namespace strata::jinja {

Bound::Bound(std::string_view function, Args& args, std::initializer_list<std::string_view> names,
             size_t required)
    : function_(function), values_(names.size()) {
  if (args.positional.size() > names.size()) {
    fail(function_, "() takes at most ", std::to_string(names.size()), " arguments (",
         std::to_string(args.positional.size()), " given)");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = std::move(args.positional[i]);
  for (auto& [name, value] : args.named) {
    size_t at = 0;
    while (at < names.size() && (names.begin()[at].empty() || names.begin()[at] != name)) ++at;
    if (at == names.size()) fail(function_, "() got an unexpected keyword argument '", name, "'");
    if (has(at)) fail(function_, "() got multiple values for argument '", name, "'");
    values_[at] = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (has(i)) continue;
    const std::string_view name = names.begin()[i];
    fail(function_, "() is missing argument ",
         name.empty() ? std::to_string(i + 1) : "'" + std::string(name) + "'");
  }
}

const std::string& Bound::text(size_t i) const {
  if (values_[i].is_undefined()) fail(values_[i].undefined_message());
  if (!values_[i].is_str()) fail(function_, "() argument must be str, not ", type_name(values_[i]));
  return values_[i].text();
}

Int Bound::integer(size_t i, Int otherwise) const { return has(i) ? require_int(values_[i]) : otherwise; }

int64_t to_int64(Int i) {
  if (i > std::numeric_limits<int64_t>::max() || i < std::numeric_limits<int64_t>::min())
    fail("integer is too large");
  return static_cast<int64_t>(i);
}

Int require_int(const Value& v) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_integral()) fail("'", type_name(v), "' object cannot be interpreted as an integer");
  return v.as_int();
}

}  // namespace strata::jinja
