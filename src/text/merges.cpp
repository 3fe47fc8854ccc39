#include "text/merges.h"

#include <bit>

namespace strata {

MergeTable::MergeTable(size_t expected) {
  const size_t size = std::bit_ceil(expected * 2 + 2);
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::insert(int left, int right, Merge merge) {
  const uint64_t wanted = key(left, right);
  size_t slot = slot_of(wanted);
  while (slots_[slot].key != kFree && slots_[slot].key != wanted) slot = (slot + 1) & mask_;
  slots_[slot] = {wanted, merge};
}

}  // namespace strata
