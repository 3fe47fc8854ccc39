// Residency: who fits. What sequences hold of pages, slots and tapes, and what of it the prefix cache keeps.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/adapters.h"
#include "runtime/memory_pools.h"
#include "runtime/prefix_cache.h"
#include "runtime/ref_pool.h"
#include "runtime/sequence.h"

namespace strata {

struct ResidencyOptions {
  PoolSizes sizes;
  bool prefix_cache = true;
  bool needs_state = false;          // the model has recurrent layers
  int snapshot_interval_pages = 16;  // of a long prompt; 0 = only at its end and at branches
  int adapter_slots = 0;
};

// Numbers only: it touches no memory, so simulations run on it too. One thread.
class Residency {
 public:
  static constexpr int kDummySlot = 0;  // what padding rows save into; never a sequence's

  explicit Residency(const ResidencyOptions& options);

  // Gives a waiting sequence what it needs to compute all it knows: the cached prefix it can take over, its pages, its slot.
  // False, and nothing is held, when that does not fit now.
  bool admit(Sequence& sequence);
  // Whether its adapter would find a slot, others' in use staying where they are.
  bool adapter_fits(const Sequence& sequence) const { return sequence.lora == nullptr || adapters_.fits(sequence.lora->generation); }
  // Pages so that `tokens` tokens fit, evicting cached ones. False: there are none; what it had stays.
  bool grow(Sequence& sequence, int tokens);
  // Offers the sequence's computed full pages to the cache, and its boundary snapshot with them when it `ends`.
  void publish(Sequence& sequence, bool ends);
  // Hangs a snapshot, written by a finished step, on the cache. Takes over the caller's reference to `slot`.
  void keep_snapshot(const Sequence& sequence, int tokens, int slot);
  // Gives back all it holds; it is as it was before admit(), its tokens kept.
  void release(Sequence& sequence);

  // A slot, evicting a cached snapshot if need be; -1 when all are in use.
  int acquire_slot();
  void release_slot(int slot) { slots_.release(slot); }

  // Most tokens one sequence can ever hold here.
  int capacity() const { return pages_.total() * kPageTokens; }
  const RefPool& pages() const { return pages_; }
  const RefPool& slots() const { return slots_; }
  PrefixCache& cache() { return cache_; }
  const PrefixCache& cache() const { return cache_; }
  RefPool& page_pool() { return pages_; }
  RefPool& slot_pool() { return slots_; }
  AdapterSlots& adapters() { return adapters_; }

  struct Counters {
    std::uint64_t query_tokens = 0, hit_tokens = 0;
    std::map<std::string, std::uint64_t> misses;  // by reason
  };
  const Counters& counters() const { return counters_; }

 private:
  void wish_snapshots(Sequence& sequence, int matched) const;

  ResidencyOptions options_;
  RefPool pages_, slots_, tapes_;
  AdapterSlots adapters_;
  PrefixCache cache_;
  Counters counters_;
};

}  // namespace strata
