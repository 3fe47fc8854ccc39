// Deterministic automata over Unicode code points: what patterns, lengths and excluded names say of a string.
#pragma once

#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Why a schema or a pattern cannot be used, in words for who wrote it. Turned into a RequestError where
// schemas are read.
class SchemaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A range of code points, both ends included.
struct CharRange {
  char32_t low, high;
  bool operator==(const CharRange&) const = default;
};
using CharSet = std::vector<CharRange>;  // in order, disjoint, not adjacent

// All code points but the surrogates.
const CharSet& all_chars();
CharSet normal(CharSet set);  // sorted and merged, without surrogates
CharSet complement(const CharSet& set);

// A value. State 0 is the start; an automaton without states accepts nothing.
struct CharDfa {
  struct Edge {
    char32_t low, high;
    int target;
  };
  struct State {
    bool accept = false;
    std::vector<Edge> edges;  // in order, disjoint
  };
  std::vector<State> states;

  bool accepts(std::string_view utf8) const;
};

// More states than this in one automaton are refused (SchemaError).
inline constexpr std::size_t kMaxDfaStates = 20000;
inline constexpr int kNoWay = std::numeric_limits<int>::max();

// Strings in both.
CharDfa intersect(const CharDfa& a, const CharDfa& b);
// Strings of at least n characters.
CharDfa at_least(int n);
// Strings (UTF-8) that are none of these.
CharDfa none_of(std::span<const std::string> texts);
// Drops states from which nothing is accepted, and those not reached.
CharDfa trimmed(const CharDfa& dfa);
// For each state the fewest characters to an accepting one; kNoWay if there is none.
std::vector<int> distance_to_accept(const CharDfa& dfa);

}  // namespace strata
