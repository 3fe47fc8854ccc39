#include "runtime/ngram_drafter.h"

#include <xxhash.h>

#include <algorithm>

namespace strata {
namespace {

std::uint64_t hash_of(const Sequence& s, int end, int n) {
  return XXH3_64bits_withSeed(s.tokens.data() + end - n, sizeof(int) * static_cast<std::size_t>(n), static_cast<std::uint64_t>(n));
}

}  // namespace

NgramDrafter::NgramDrafter(int max_sequences) : indices_(static_cast<std::size_t>(max_sequences)) {
  for (int i = max_sequences - 1; i >= 0; --i) free_.push_back(i);
}

void NgramDrafter::propose(std::span<const DraftWish> wishes) {
  for (const DraftWish& w : wishes) {
    Sequence& s = *w.sequence;
    s.drafts.clear();
    if (w.drafts <= 0) continue;
    if (s.draft_index < 0) {
      s.draft_index = free_.back();
      free_.pop_back();
      indices_[static_cast<std::size_t>(s.draft_index)] = {};
    }
    Index& index = indices_[static_cast<std::size_t>(s.draft_index)];
    for (int next = std::max(index.indexed, kShortest); next < s.known(); ++next) {
      for (int n = kShortest; n <= std::min(kLongest, next); ++n) index.after[hash_of(s, next, n)] = next;
    }
    index.indexed = s.known();
    for (int n = std::min(kLongest, s.known()); n >= kShortest && s.drafts.empty(); --n) {
      const auto found = index.after.find(hash_of(s, s.known(), n));
      if (found == index.after.end()) continue;
      // Past the end of what is known, the repetition itself goes on.
      for (int i = 0; i < w.drafts; ++i) {
        const int at = found->second + i;
        s.drafts.push_back(at < s.known() ? s.tokens[static_cast<std::size_t>(at)] : s.drafts[static_cast<std::size_t>(at - s.known())]);
      }
    }
  }
}

void NgramDrafter::forget(Sequence& s) {
  if (s.draft_index >= 0) free_.push_back(s.draft_index);
  s.draft_index = -1;
}

}  // namespace strata
