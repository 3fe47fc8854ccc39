// Splitting, replacing and padding text as Python's str methods do; shared by methods and filters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace strata::jinja {

// No text may grow longer in one go, in bytes.
constexpr size_t kMaxText = size_t{1} << 28;

// str.split / rsplit with a separator; at most `limit` cuts if it is not negative.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, Int limit,
                                    bool from_right);
// The same at runs of white space.
std::vector<std::string_view> split_space(std::string_view text, Int limit, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// The first `limit` occurrences, or all if it is negative.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, Int limit);
// Padded to `width` code points; align '<', '>' or '^'.
std::string justify_text(std::string_view text, Int width, char align, std::string_view fill);

}  // namespace strata::jinja
