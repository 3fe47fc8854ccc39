// Finds stop strings in text that arrives in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Reads a text byte by byte and knows at every byte how much of its end may still become a stop string. Of
// all occurrences the one that ends first counts, of those the longest: so the answer does not depend on how
// the text was cut. Empty stop strings never occur. For one text and one thread.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  // Reads a byte; true when a stop string ends with it.
  bool add(char byte);
  // The index of the stop string that add found.
  size_t found() const { return found_; }
  const std::string& stop(size_t index) const { return patterns_[index].text; }
  // Bytes at the end of what was read that are the beginning of some stop string.
  size_t held() const { return held_; }

 private:
  // Knuth, Morris and Pratt 1977: after a mismatch, go on with the longest border of what matched.
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // border[n]: longest proper border of text[0, n)
    size_t matched = 0;
  };

  std::vector<Pattern> patterns_;
  size_t held_ = 0;
  size_t found_ = 0;
};

}  // namespace strata
