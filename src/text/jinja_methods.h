// The table of str's methods, which is long enough for a file of its own.
#pragma once

#include <vector>

#include "text/jinja_registry.h"

namespace strata::jinja {

// Sorted by name.
const std::vector<Named<MethodFn>>& str_methods();

}  // namespace strata::jinja
