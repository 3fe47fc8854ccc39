// MtpDrafter: drafts by the model's own multi-token-prediction head (Gloeckle et al. 2024; DeepSeek-V3 2024).
#pragma once

#include <vector>

#include "runtime/batch_builder.h"
#include "runtime/drafter.h"
#include "runtime/runner.h"

namespace strata {

// The head's entry for token j reads (hidden state of token j - 1, token j) and lies at index j of the sequence's own pages,
// so the prefix cache carries it. A hidden state whose next token is not known yet, or not yet entered, is pending; the
// last one before a snapshot is kept with the snapshot ("carry"), so that a prefix hit can go on. Drafting k tokens is one
// pass over the pending entries of all sequences, then k - 1 passes of one row each that feed the head its own output.
class MtpDrafter final : public Drafter {
 public:
  // `memory`: of the head's layers. `carry` [slots, D].
  MtpDrafter(const Model& head, std::span<const Memory> memory, Tensor carry, int max_sequences, Runner& runner);

  void propose(std::span<const DraftWish> wishes) override;
  void observe(const FinishedStep& step) override;
  void forget(Sequence& sequence) override;

 private:
  struct State {
    int first = 0, count = 0;   // pending: hidden states of tokens [first, first + count)
  };
  struct Copies {               // (row there, row here), for save_rows
    std::vector<int> store, carry, step;
  };

  State& state(Sequence& sequence) { return states_[static_cast<std::size_t>(sequence.draft_index)]; }
  // Adds the sequence's pending entries to the batch; returns the row of the last.
  int add_pending(Sequence& sequence);
  void add_entry_rows(Sequence& sequence, int first_entry, int count);
  void remember(Sequence& sequence, const StepRun& run, int from, int count, std::vector<int>& keep);
  Tensor gather_hidden(Tensor step_hidden);
  void copy(Tensor from, std::span<const int> pairs, Tensor to);

  const Model& head_;
  std::span<const Memory> memory_;
  Tensor carry_;
  Runner& runner_;
  Buffer store_buffer_;
  Tensor store_;                // [max_sequences * kTapeRows, D]: pending hidden states
  std::vector<State> states_;
  std::vector<int> free_;
  BatchBuilder builder_;
  Copies copies_;
};

}  // namespace strata
