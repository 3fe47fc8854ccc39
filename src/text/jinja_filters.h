// The filters, in three tables: on text, on sequences, on other values.
#pragma once

#include <vector>

#include "text/jinja_registry.h"

namespace strata::jinja {

const std::vector<Named<FilterFn>>& text_filters();
const std::vector<Named<FilterFn>>& sequence_filters();
const std::vector<Named<FilterFn>>& value_filters();

}  // namespace strata::jinja
