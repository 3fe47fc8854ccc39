#include "runtime/residency.h"

#include <algorithm>
#include <span>

namespace strata {

Residency::Residency(const ResidencyOptions& options)
    : options_(options), pages_(options.sizes.pages), slots_(options.sizes.slots), tapes_(options.sizes.tapes),
      adapters_(options.adapter_slots), cache_(pages_, slots_, options.needs_state) {
  STRATA_CHECK(slots_.acquire() == kDummySlot, "the first slot is the dummy");
}

int Residency::acquire_slot() {
  const int slot = slots_.acquire();
  if (slot >= 0 || !cache_.evict_slot()) return slot;
  return slots_.acquire();
}

bool Residency::grow(Sequence& sequence, int tokens) {
  const auto want = static_cast<std::size_t>((tokens + kPageTokens - 1) / kPageTokens);
  while (sequence.pages.size() < want) {
    int page = pages_.acquire();
    if (page < 0 && cache_.evict_page()) page = pages_.acquire();
    if (page < 0) return false;
    sequence.pages.push_back(page);
  }
  return true;
}

bool Residency::admit(Sequence& s) {
  STRATA_CHECK(s.pages.empty() && s.slot < 0 && s.computed == 0, "sequence {} is admitted twice", s.id);
  if (!adapter_fits(s)) return false;
  s.slot = acquire_slot();
  if (s.slot < 0) return false;

  const bool cached = options_.prefix_cache && s.request.prompt_logprobs < 0;
  PrefixHit hit;
  if (cached) hit = cache_.match(s.root, s.tokens);
  s.pages = hit.pages;
  s.start_slot = hit.slot;
  s.computed = hit.tokens;
  // What cannot fit even with the whole cache gone is not worth evicting the cache for.
  const int missing = (s.known() + kPageTokens - 1) / kPageTokens - static_cast<int>(s.pages.size());
  if (missing > pages_.free() + cache_.evictable_pages() || !grow(s, s.known())) {
    release(s);
    return false;
  }
  if (s.lora != nullptr) s.adapter = adapters_.acquire(s.lora->generation);
  s.tape = tapes_.acquire();  // none: the sequence verifies eagerly
  if (cached) {
    counters_.query_tokens += static_cast<std::uint64_t>(s.known());
    counters_.hit_tokens += static_cast<std::uint64_t>(hit.tokens);
    if (hit.tokens == 0) ++counters_.misses[hit.reason];
    if (hit.matched > hit.tokens && hit.tokens > 0) ++counters_.misses["partial_snapshot"];
    wish_snapshots(s, hit.matched);
  }
  return true;
}

void Residency::wish_snapshots(Sequence& s, int matched) const {
  s.snapshots_at.clear();
  if (!options_.needs_state) return;
  const int last = (s.known() - 1) / kPageTokens * kPageTokens;  // leaves a token to compute
  if (matched > s.computed) s.snapshots_at.push_back(matched);   // where a stored branch diverges
  if (last > s.computed) s.snapshots_at.push_back(last);
  if (const int step = options_.snapshot_interval_pages * kPageTokens; step > 0) {
    for (int at = (s.computed / step + 1) * step; at < last; at += step) s.snapshots_at.push_back(at);
  }
  std::sort(s.snapshots_at.begin(), s.snapshots_at.end());
  s.snapshots_at.erase(std::unique(s.snapshots_at.begin(), s.snapshots_at.end()), s.snapshots_at.end());
}

void Residency::publish(Sequence& s, bool ends) {
  if (!options_.prefix_cache) return;
  const auto full = static_cast<std::size_t>(s.computed / kPageTokens);
  cache_.insert(s.root, std::span(s.tokens).first(full * kPageTokens), std::span(s.pages).first(full));
  if (ends && s.boundary_slot >= 0 && s.boundary_tokens > 0) {
    cache_.attach(s.root, std::span(s.tokens).first(static_cast<std::size_t>(s.boundary_tokens)), s.boundary_slot);
  }
}

void Residency::keep_snapshot(const Sequence& s, int tokens, int slot) {
  STRATA_CHECK(tokens <= s.computed, "snapshot at {} of {} computed tokens", tokens, s.computed);
  cache_.attach(s.root, std::span(s.tokens).first(static_cast<std::size_t>(tokens)), slot);
  slots_.release(slot);
}

void Residency::release(Sequence& s) {
  for (; !s.pages.empty(); s.pages.pop_back()) pages_.release(s.pages.back());  // the deepest is the first to be evicted
  for (int* slot : {&s.slot, &s.start_slot, &s.boundary_slot}) {
    if (*slot >= 0) slots_.release(*slot);
    *slot = -1;
  }
  if (s.tape >= 0) tapes_.release(s.tape);
  s.tape = -1;
  if (s.adapter >= 0) adapters_.release(s.adapter);
  s.adapter = -1;
  s.tape_rows = s.boundary_tokens = s.computed = 0;
  s.snapshots_at.clear();
}

}  // namespace strata
