// Regular expressions of JSON schemas as automata.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/char_dfa.h"

namespace strata {

// The strings in which `pattern` is found (ECMA-262 with the u flag, as JSON Schema asks). Understood:
// characters, escapes
// (\d \w \s \D \W \S, \t \n \v \f \r \0 \cX \xHH \uHHHH \u{H}, escaped punctuation), `.`, classes, groups
// (also named and non-capturing), alternation, ^ and $ anywhere, and the quantifiers ? * + {m} {m,} {m,n},
// greedy or lazy. Anything else (back references, look-around, \b, \p) throws SchemaError naming it, and so
// does a pattern that needs more than `work` steps, which are subtracted.
CharDfa pattern_dfa(std::string_view pattern, std::size_t& work);
inline constexpr std::size_t kPatternWork = 20'000'000;  // well below a second

}  // namespace strata
