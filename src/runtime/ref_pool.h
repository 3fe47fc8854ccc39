// RefPool: numbered places (KV pages, state slots) with a free list and reference counts.
#pragma once

#include <vector>

#include "base/check.h"

namespace strata {

// One thread. free() + held() == total() at all times; a place is on the free list exactly when nobody refers to it.
class RefPool {
 public:
  explicit RefPool(int total) : refs_(static_cast<std::size_t>(total)) {
    free_.reserve(refs_.size());
    for (int i = total - 1; i >= 0; --i) free_.push_back(i);
  }

  int total() const { return static_cast<int>(refs_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  int held() const { return total() - free(); }
  int refs(int id) const { return refs_.at(static_cast<std::size_t>(id)); }

  // A free place with one reference, or -1. Its contents are whatever its last owner left.
  int acquire() {
    if (free_.empty()) return -1;
    const int id = free_.back();
    free_.pop_back();
    refs_[static_cast<std::size_t>(id)] = 1;
    return id;
  }
  void retain(int id) {
    STRATA_CHECK(refs(id) > 0, "retain of free place {}", id);
    ++refs_[static_cast<std::size_t>(id)];
  }
  void release(int id) {
    STRATA_CHECK(refs(id) > 0, "release of free place {}", id);
    if (--refs_[static_cast<std::size_t>(id)] == 0) free_.push_back(id);
  }

 private:
  std::vector<int> refs_;
  std::vector<int> free_;
};

}  // namespace strata
