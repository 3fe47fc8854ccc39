// NgramDrafter: drafts what followed the last occurrence of the latest tokens in the sequence itself.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/drafter.h"

namespace strata {

// Prompt lookup decoding (Saxena 2023): the longest of 4, 3 and 2 tokens that occurred before wins.
class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(int max_sequences);
  void propose(std::span<const DraftWish> wishes) override;
  void forget(Sequence& sequence) override;

 private:
  static constexpr int kLongest = 4, kShortest = 2;
  struct Index {
    int indexed = 0;                                    // tokens whose n-grams are in, all but the last
    std::unordered_map<std::uint64_t, int> after;       // hash of an n-gram -> index of the token that followed it last
  };

  std::vector<Index> indices_;
  std::vector<int> free_;
};

}  // namespace strata
