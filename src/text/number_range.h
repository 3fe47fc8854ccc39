// Decimal numbers within bounds as automata over their digits.
#pragma once

#include <optional>
#include <string>

#include "text/char_dfa.h"

namespace strata {

struct NumberBound {
  std::string value;    // as JSON writes it: "12", "-0.5", "1e-3"
  bool strict = false;  // the bound itself is outside
};

// JSON's spellings of the numbers between the bounds. Digits are limited so that a number always ends: 18
// before the point (an int64 holds them), 17 after it and two of the exponent; with bounds 12 after the point
// (fewer than a double has, so that a strict bound stays strict) and no exponent. `integer`: neither point
// nor exponent. Throws SchemaError for a bound that is not written within 40 digits.
CharDfa number_dfa(bool integer, const std::optional<NumberBound>& low,
                   const std::optional<NumberBound>& high);

}  // namespace strata
