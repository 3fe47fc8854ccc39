// Drafter: guesses the next tokens of sequences, to be verified by the model.
#pragma once

#include <span>
#include <vector>

#include "ops/batch.h"
#include "runtime/sequence.h"

namespace strata {

struct DraftWish {
  Sequence* sequence = nullptr;
  int drafts = 0;             // at most
};

// One sequence's rows in a finished step, of which the first `valid` hold tokens that stay.
struct StepRun {
  Sequence* sequence = nullptr;
  int first_row = 0, rows = 0, valid = 0;
  int start = 0;              // index of the first row in its sequence
  int state_in = -1;          // slot the run started from
  bool ends = false;          // the sequence stops running after this step
};

// What a step kept for later: the state after `token` (an index in its sequence) in `slot`.
struct StepSave {
  const Sequence* sequence = nullptr;
  int token = 0, slot = 0;
};

struct FinishedStep {
  std::span<const StepRun> runs;
  std::span<const StepSave> kept;
  Tensor hidden;              // [T, D] after the model's final norm
  Tensor saves;               // [N, 2] (row, slot): what the step saved
};

// Used by the engine's thread. A draft can be wrong in any way: verification decides, so output never depends on a drafter.
// propose() and observe() may throw OutOfMemory; the step goes on without drafts, and its sequences must be forgotten.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Fills sequence->drafts (cleared before) with at most the wished number of tokens; their pages are there. What is still
  // being drawn is 0 there until settle(), and in sequence->draft_draws.
  virtual void propose(std::span<const DraftWish> wishes) = 0;
  // Waits for the drafts of the latest propose(), of which sequences may have dropped the last.
  virtual void settle() {}
  // Called after every step and before its scratch goes away.
  virtual void observe(const FinishedStep& step) { (void)step; }
  // The sequence stops running (finished, aborted or preempted).
  virtual void forget(Sequence& sequence) { (void)sequence; }
};

}  // namespace strata
