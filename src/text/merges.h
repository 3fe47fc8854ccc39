// Which neighbours byte-pair encoding joins, and the loop that joins them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace strata {

// What joining two neighbours gives. The lowest rank is joined first.
struct Merge {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  uint32_t rank = kNone;
  int id = -1;
};

// A part of a word: a token, or text that is no token (id below 0).
struct Symbol {
  int id;
  uint32_t begin, length;  // bytes of the word
};

// Joins for pairs of ids, by hash. Immutable once filled.
class MergeTable {
 public:
  explicit MergeTable(size_t expected);
  // Of two joins of one pair the later counts.
  void insert(int left, int right, Merge merge);
  Merge find(int left, int right) const {
    if (left < 0 || right < 0) return {};
    for (size_t slot = slot_of(key(left, right));; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key(left, right)) return slots_[slot].merge;
      if (slots_[slot].key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t key(int left, int right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // Fibonacci hashing: 2^64 / golden ratio.
  size_t slot_of(uint64_t k) const { return (k ^ k >> 29) * 0x9E3779B97F4A7C15u >> shift_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

// Joins the pair of lowest rank, the leftmost of equals, until none is left.
// find(left, right) says what two neighbours give. Ids of symbols that came from a join are set.
template <typename Find>
void merge_symbols(std::vector<Symbol>& symbols, const Find& find);

}  // namespace strata

#include "text/merges_inl.h"
