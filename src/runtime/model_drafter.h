// ModelDrafter: drafts by a smaller model with the same vocabulary (Leviathan, Kalman and Matias 2023).
#pragma once

#include <memory>
#include <vector>

#include "runtime/batch_builder.h"
#include "runtime/draft_chain.h"
#include "runtime/drafter.h"
#include "runtime/memory_pools.h"
#include "runtime/ref_pool.h"
#include "runtime/runner.h"

namespace strata {

// The draft model has pages and slots of its own; each sequence has one slot for the state after the tokens that stay and
// one for the drafts after them. It reads a prompt in pieces over several steps and drafts when it has caught up.
class ModelDrafter final : public Drafter {
 public:
  // Throws Error when the pools do not fit. `memory_bytes` for its keys, values and states.
  ModelDrafter(std::shared_ptr<const Model> model, Runner& runner, int max_sequences, int max_context, DType kv_dtype,
               std::size_t memory_bytes);

  void propose(std::span<const DraftWish> wishes) override;
  void settle() override { drafting_.settle(runner_); }
  void forget(Sequence& sequence) override;

 private:
  struct State {
    std::vector<int> pages;
    int computed = 0;         // tokens of the sequence in the draft model's memory
  };

  State& state(const Sequence& sequence) { return states_[static_cast<std::size_t>(sequence.draft_index)]; }
  static int kept_slot(const Sequence& s) { return 1 + 2 * s.draft_index; }
  static int draft_slot(const Sequence& s) { return 2 + 2 * s.draft_index; }
  bool grow(State& state, int tokens);
  void read_and_draft(std::span<const DraftWish> wishes);

  std::shared_ptr<const Model> model_;
  Runner& runner_;
  std::vector<StateSpec> specs_;
  PoolSizes sizes_;
  MemoryPools pools_;
  RefPool pages_;
  std::vector<State> states_;
  std::vector<int> free_;
  static constexpr int kMostRows = 512, kFewRows = 32, kStepsToGrow = 16;
  int catch_up_rows_ = kMostRows;  // of all sequences in one propose(); halved when it finds no memory for more than a few
  int steps_since_shrink_ = 0;
  BatchBuilder builder_;
  DraftChain drafting_;
};

}  // namespace strata
