// What turns one word into token ids.
#pragma once

#include <string_view>
#include <vector>

namespace strata {

// Immutable once built, so shared by threads without locks.
class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of a word, which is not empty and valid UTF-8.
  virtual void encode(std::string_view word, std::vector<int>& out) const = 0;
};

}  // namespace strata
