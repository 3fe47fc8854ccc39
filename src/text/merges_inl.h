// The joining loop of merges.h: a scan for short words, a heap over a linked list for long ones.
#pragma once

#include <algorithm>
#include <array>
#include <queue>

#include "text/merges.h"

namespace strata {
namespace merging {

// A scan costs n^2 cheap steps; beyond this many symbols the heap wins.
inline constexpr size_t kScanLimit = 32;

template <typename Find>
void merge_by_scan(std::vector<Symbol>& symbols, const Find& find) {
  std::array<Merge, kScanLimit> next;  // next[i]: symbol i with symbol i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) next[i] = find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == Merge::kNone) break;
    symbols[best].id = next[best].id;
    symbols[best].length += symbols[best + 1].length;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      next[i - 1] = next[i];
    }
    --n;
    if (best > 0) next[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) next[best] = find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

struct Candidate {
  uint32_t rank;
  uint32_t left, right;  // symbols
  uint32_t length;       // bytes of both when this was found: if they differ now, it is out of date
  int id;
  bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
};

template <typename Find>
void merge_by_heap(std::vector<Symbol>& symbols, const Find& find) {
  constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> previous(n), next(n);
  std::vector<Candidate> storage;
  storage.reserve(n);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>{},
                                                                               std::move(storage));
  const auto consider = [&](uint32_t left, uint32_t right) {
    if (left == kEnd || right == kEnd) return;
    const Merge merge = find(symbols[left], symbols[right]);
    if (merge.rank == Merge::kNone) return;
    queue.push({merge.rank, left, right, symbols[left].length + symbols[right].length, merge.id});
  };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kEnd : i - 1;
    next[i] = i + 1 == n ? kEnd : i + 1;
  }
  for (uint32_t i = 0; i + 1 < n; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    // A symbol only grows or becomes empty, so a pair is still the one found if neither is empty and the sum
    // is the same.
    if (symbols[top.left].length == 0 || symbols[top.right].length == 0 ||
        symbols[top.left].length + symbols[top.right].length != top.length) {
      continue;
    }
    symbols[top.left].id = top.id;
    symbols[top.left].length = top.length;
    symbols[top.right].length = 0;
    next[top.left] = next[top.right];
    if (next[top.left] != kEnd) previous[next[top.left]] = top.left;
    consider(previous[top.left], top.left);
    consider(top.left, next[top.left]);
  }
  symbols.erase(std::remove_if(symbols.begin(), symbols.end(), [](const Symbol& s) { return s.length == 0; }),
                symbols.end());
}

}  // namespace merging

template <typename Find>
void merge_symbols(std::vector<Symbol>& symbols, const Find& find) {
  if (symbols.size() <= merging::kScanLimit) {
    merging::merge_by_scan(symbols, find);
  } else {
    merging::merge_by_heap(symbols, find);
  }
}

}  // namespace strata
