// LoraTable: what the adapters add to one matrix (LoRA; Hu et al. 2021), slot by slot, as a backend keeps it.
#pragma once

#include <unordered_map>
#include <vector>

#include "ops/weight.h"

namespace strata {

// The B of one published matrix inside a fused one: its `rank` lines of A x go to outputs [output, output +
// b.outputs()).
struct LoraPart {
  Weight b;                 // [n, rank], or [E, n, rank] of experts; the adapter's scale is folded in
  std::int64_t line = 0;    // first of its lines among those of A
  std::int64_t output = 0;  // first output
};

// What one adapter adds to one matrix: B A x.
struct LoraPair {
  Weight a;  // [R, K]: the lines of all parts; [E, R, K] of experts; of an embedding [V, R], a row a token
  std::vector<LoraPart> parts;
};

// One matrix's adapters. Its address, and that of what a backend keeps in `device`, stay as adapters come and
// go, so that a captured step replays with the new ones.
struct LoraTable {
  LoraTable(int slots, int most_lines, bool of_embedding = false)
      : pairs(static_cast<std::size_t>(slots)), lines(most_lines), embedding(of_embedding) {}
  std::vector<const LoraPair*> pairs;  // by slot; null = adds nothing
  int lines;                           // R of a pair at most
  bool embedding;
  Buffer device;  // a backend's own form, or empty
};

// The tables of a model's matrices. Keys are the addresses of the Linear, ExpertLinear or embedding (a
// Weight) that a table belongs to. What is in a table changes between steps only.
class LoraTables {
 public:
  // Null = no adapter can add to this matrix.
  const LoraTable* find(const void* matrix) const {
    const auto found = tables_.find(matrix);
    return found == tables_.end() ? nullptr : &found->second;
  }
  LoraTable& add(const void* matrix, int slots, int lines, bool embedding) {
    return tables_.try_emplace(matrix, slots, lines, embedding).first->second;
  }
  LoraTable& at(const void* matrix) { return tables_.at(matrix); }

 private:
  std::unordered_map<const void*, LoraTable> tables_;  // values do not move
};

}  // namespace strata
