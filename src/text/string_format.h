// The formats of JSON Schema's strings as patterns.
#pragma once

#include <string_view>

namespace strata {

// A pattern that only strings of the format match (a part of them where the format is wide: uri, email);
// empty for a format that is not known.
std::string_view format_pattern(std::string_view format);

}  // namespace strata
