// Python's three ways to format text: "..." % values, "...".format(values), and format specifications.
#pragma once

#include <string>

#include "text/jinja_value.h"

namespace strata::jinja {

// format % arguments; a tuple gives several values, a dict named ones. A safe format escapes its values.
std::string format_percent(const Value& format, const Value& arguments);
// format.format(*args, **args)
std::string format_braces(const Value& format, const Args& args);
// format(v, spec)
std::string format_value(const Value& v, std::string_view spec);
// v as %e, %f or %g write it ('e', 'E', 'f', 'F', 'g', 'G'); `alternate` keeps trailing zeros.
std::string format_float(double v, int precision, char type, bool alternate);

}  // namespace strata::jinja
