#include "text/vocabulary.h"

#include <xxhash.h>

#include <bit>

namespace strata {

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  slots_.assign(std::bit_ceil(tokens_.size() * 2 + 2), -1);
  const size_t mask = slots_.size() - 1;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const std::string& token = tokens_[id];
    if (token.empty()) continue;
    size_t slot = XXH3_64bits(token.data(), token.size()) & mask;
    while (slots_[slot] >= 0 && tokens_[static_cast<size_t>(slots_[slot])] != token) slot = (slot + 1) & mask;
    if (slots_[slot] < 0) slots_[slot] = static_cast<int32_t>(id);
  }
}

int Vocabulary::find(std::string_view token) const {
  if (slots_.empty() || token.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = XXH3_64bits(token.data(), token.size()) & mask; slots_[slot] >= 0;
       slot = (slot + 1) & mask) {
    if (tokens_[static_cast<size_t>(slots_[slot])] == token) return slots_[slot];
  }
  return -1;
}

}  // namespace strata
