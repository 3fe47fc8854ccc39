// RefPool: numbered places (KV pages, state slots) with a free list and reference counts.
#pragma once

#include <vector>

#include "base/check.h"

namespace strata {

// One thread. free() + held() == total() at all times; a place is on the free list exactly when nobody refers to it.
// A keeper (a cache) may mark places that it refers to: those that nobody else refers to are counted.
class RefPool {
 public:
  explicit RefPool(int total) : refs_(static_cast<std::size_t>(total)), kept_(static_cast<std::size_t>(total)) {
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
    if (kept_alone(id)) --kept_alone_;
    ++refs_[static_cast<std::size_t>(id)];
  }
  void release(int id) {
    STRATA_CHECK(refs(id) > 0, "release of free place {}", id);
    STRATA_CHECK(!kept_alone(id), "release of place {}, which is marked", id);
    if (--refs_[static_cast<std::size_t>(id)] == 0) free_.push_back(id);
    if (kept_alone(id)) ++kept_alone_;
  }

  // The keeper's mark, set and taken away while it refers to the place; one for each place at most.
  void keep(int id, bool kept) {
    STRATA_CHECK(refs(id) > 0 && kept_[static_cast<std::size_t>(id)] != kept, "place {} cannot be marked", id);
    kept_[static_cast<std::size_t>(id)] = kept;
    if (refs(id) == 1) kept_alone_ += kept ? 1 : -1;
  }
  int kept_alone() const { return kept_alone_; }  // marked, and only the keeper refers to them

 private:
  bool kept_alone(int id) const { return kept_[static_cast<std::size_t>(id)] && refs(id) == 1; }

  std::vector<int> refs_;
  std::vector<bool> kept_;
  int kept_alone_ = 0;
  std::vector<int> free_;
};

}  // namespace strata
