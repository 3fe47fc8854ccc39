// BatchBuilder: rows of several sequences -> the host tensors of a Batch.
#pragma once

#include <span>
#include <vector>

#include "ops/batch.h"

namespace strata {

// The rows of one sequence in a step.
struct BatchRun {
  std::span<const int> tokens;   // one a row
  int start = 0;                 // index of the first row in its sequence
  std::span<const int> pages;    // covering start + tokens.size() tokens
  int state_in = -1;
  int adapter = -1;              // LoRA slot; -1 = base
  int tape = -1, replay = 0, state_out = -1;
};

// Keeps its memory between steps. batch() views it: valid until the next clear().
class BatchBuilder {
 public:
  void clear();
  // Returns the row number of the run's first row.
  int add(const BatchRun& run);
  void save(int row, int slot);      // rows in ascending order over all calls
  void want_logits(int row);         // likewise; at most once a row
  // Adds padding sequences (after the last run) and numbers up to `shape`: see padded_shape() and BatchShape.
  void pad(const BatchShape& shape);
  BatchShape shape() const;
  // Its adapters are empty when all are -1; else whoever asked for them sets `lora`.
  Batch batch();

  std::span<const int> saves() const { return saves_; }  // (row, slot)
  int rows() const { return static_cast<int>(tokens_.size()); }

 private:
  std::vector<int> tokens_, positions_, sequence_, first_ = {0}, start_, kv_slots_, state_in_, saves_, adapters_, logit_rows_, logit_adapters_;
  std::vector<int> tape_, replay_, state_out_;
  std::vector<int> pages_, page_first_ = {0};  // of all sequences, packed; page_first_[s] is sequence s's first
  std::vector<int> page_table_;
  int longest_run_ = 0, longest_context_ = 0;
};

}  // namespace strata
