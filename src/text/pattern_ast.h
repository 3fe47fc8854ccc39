// The syntax tree of a pattern; internal to pattern.cpp and pattern_parser.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "text/char_dfa.h"

namespace strata {

struct PatternNode {
  enum class Kind : unsigned char { kChars, kSequence, kChoice, kRepeat, kStart, kEnd };
  Kind kind = Kind::kSequence;
  CharSet chars;                      // kChars
  std::vector<PatternNode> children;  // kSequence, kChoice; one of kRepeat
  int min = 0, max = -1;              // kRepeat; -1 = any number
};

// Throws SchemaError.
PatternNode parse_pattern(std::string_view pattern);

}  // namespace strata
