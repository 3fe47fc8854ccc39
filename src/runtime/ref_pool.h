// RefPool: numbered places (KV pages, state slots) with a free list and reference counts.
#pragma once

#include <vector>

#include "base/check.h"

namespace strata {

// One thread. free() + held() == total() at all times; a place is on the free list exactly when nobody refers to it.
// A keeper (a cache) may mark places that it refers to: those that nobody else refers to are kept in the order in which
// they were last used.
class RefPool {
 public:
  explicit RefPool(int total)
      : refs_(static_cast<std::size_t>(total)), kept_(static_cast<std::size_t>(total)), alone_(static_cast<std::size_t>(total) + 1) {
    alone_[static_cast<std::size_t>(total)] = {total, total};
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
    if (kept_alone(id)) leave(id);
    ++refs_[static_cast<std::size_t>(id)];
  }
  void release(int id) {
    STRATA_CHECK(refs(id) > 0, "release of free place {}", id);
    STRATA_CHECK(!kept_alone(id), "release of place {}, which is marked", id);
    if (--refs_[static_cast<std::size_t>(id)] == 0) free_.push_back(id);
    if (kept_alone(id)) join(id);
  }

  // The keeper's mark, set and taken away while it refers to the place; one for each place at most.
  void keep(int id, bool kept) {
    STRATA_CHECK(refs(id) > 0 && kept_[static_cast<std::size_t>(id)] != kept, "place {} cannot be marked", id);
    if (kept_alone(id)) leave(id);
    kept_[static_cast<std::size_t>(id)] = kept;
    if (kept_alone(id)) join(id);
  }
  int kept_alone() const { return kept_alone_; }  // marked, and only the keeper refers to them
  // Of those the one that has been so for longest, or -1.
  int oldest_kept_alone() const { return kept_alone_ > 0 ? alone_[refs_.size()].before : -1; }
  // As if the place had only now been left to the keeper, if it has.
  void renew(int id) {
    if (!kept_alone(id)) return;
    leave(id);
    join(id);
  }

 private:
  bool kept_alone(int id) const { return kept_[static_cast<std::size_t>(id)] && refs(id) == 1; }

  // A ring from the newest to the oldest, whose end is the number after the last place.
  struct Link {
    int before, after;
  };
  void join(int id) {
    Link &end = alone_.back(), &own = alone_[static_cast<std::size_t>(id)];
    own = {total(), end.after};
    alone_[static_cast<std::size_t>(end.after)].before = id;
    end.after = id;
    ++kept_alone_;
  }
  void leave(int id) {
    const Link own = alone_[static_cast<std::size_t>(id)];
    alone_[static_cast<std::size_t>(own.before)].after = own.after;
    alone_[static_cast<std::size_t>(own.after)].before = own.before;
    --kept_alone_;
  }

  std::vector<int> refs_;
  std::vector<bool> kept_;
  std::vector<Link> alone_;
  int kept_alone_ = 0;
  std::vector<int> free_;
};

}  // namespace strata
