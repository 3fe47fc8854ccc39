// MtpDrafter: drafts by the model's own multi-token-prediction head (Gloeckle et al. 2024; DeepSeek-V3 2024).
#pragma once

#include <vector>

#include "runtime/batch_builder.h"
#include "runtime/draft_chain.h"
#include "runtime/drafter.h"
#include "runtime/runner.h"

namespace strata {

// The head's entry for token j at depth d reads (H_d of token j - 1, token j): H_1 is the model's final hidden state, H_d the
// head's own output at depth d - 1. Every depth has keys and values of its own, as in training, at index j of the sequence's own
// pages, so the prefix cache carries them; drafts beyond the last depth go on in its memory. A hidden state whose next token is not
// known or not entered yet is pending; the last H before a snapshot is kept with the snapshot ("carry"), so that a prefix hit can go on.
// Drafting k tokens takes k passes: pass d enters the pending tokens of all sequences, and the drafts so far, at depth d.
class MtpDrafter final : public Drafter {
 public:
  // `memory`: of the head's layers, depth after depth. `carries`: one [slots, D] a depth.
  MtpDrafter(const Model& head, std::span<const Memory> memory, std::vector<Tensor> carries, int max_sequences, Runner& runner);

  void propose(std::span<const DraftWish> wishes) override;
  void settle() override { drafting_.settle(runner_); }
  void observe(const FinishedStep& step) override;
  void forget(Sequence& sequence) override;

 private:
  struct State {
    int first = 0, count = 0;   // pending: H_1 of tokens [first, first + count)
  };
  // Tokens [first, first + count) of a sequence being entered, and the drafts after them; rows of the current pass.
  struct Entering {
    Sequence* sequence = nullptr;
    int first = 0, count = 0;
    int row = 0, rows = 0;      // of the pass
    int before = 0;             // first row of the pass before
    int wish = 0;               // drafts to make
    int carry_slot = -1;        // H before the first token lies here, if the store does not have it
    bool cold = false;          // there is no H_d before the first token: H_1 stands in for it
  };
  using Pairs = std::vector<int>;  // (row there, row here), for save_rows

  int depths() const { return static_cast<int>(carries_.size()); }
  std::span<const Memory> memory(int depth) const { return memory_.subspan(static_cast<std::size_t>(depth) * head_.layers.size(), head_.layers.size()); }
  State& state(const Sequence& sequence) { return states_[static_cast<std::size_t>(sequence.draft_index)]; }
  void admit(Sequence& sequence);
  // The rows of pass `pass` (0 = depth 1): tokens, drafts before it (drawn_). Beyond the last depth: the newest draft alone.
  void build(std::vector<Entering>& entering, int pass);
  // H of the pass from the outputs of the pass before (h1: the H_1 rows of pass 0).
  Tensor chain(const std::vector<Entering>& entering, int pass, Tensor h1, Tensor before);
  void copy(Tensor from, const Pairs& pairs, Tensor to);
  void remember(const Sequence& s, const StepRun& run, int from, int count, Pairs& keep);

  const Model& head_;
  std::span<const Memory> memory_;
  std::vector<Tensor> carries_;
  Runner& runner_;
  Buffer store_buffer_, last_buffer_;
  Tensor store_;                // [max_sequences * kTapeRows, D]: pending H_1
  std::vector<Tensor> last_;    // per depth but the last, [max_sequences, D]: the output for the last entered token
  std::vector<State> states_;
  std::vector<int> free_;
  BatchBuilder builder_;
  std::vector<TokenSource> drawn_;
  DraftChain drafting_;
};

}  // namespace strata
