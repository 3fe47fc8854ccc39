// The tokens of a model, by id and by text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Immutable once built, so shared by threads without locks; views it returns live as long as it does.
class Vocabulary {
 public:
  Vocabulary() = default;
  // tokens[id] is the text of token id; an empty text marks an id that is not used. Of two equal texts the
  // lower id is found.
  explicit Vocabulary(std::vector<std::string> tokens);

  // The id, or -1.
  int find(std::string_view token) const;
  // One more than the highest id.
  int size() const { return static_cast<int>(tokens_.size()); }
  bool contains(int id) const { return id >= 0 && id < size() && !tokens_[static_cast<size_t>(id)].empty(); }
  // The text of an id in [0, size()).
  std::string_view token(int id) const { return tokens_[static_cast<size_t>(id)]; }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> slots_;  // open addressing, a power of two at least twice the tokens; -1 = free
};

}  // namespace strata
