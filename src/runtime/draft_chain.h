// DraftChain: the drafts of several passes, each of which takes tokens of those before it, and the one wait
// for them.
#pragma once

#include <span>
#include <vector>

#include "runtime/runner.h"
#include "runtime/sequence.h"

namespace strata {

// One thread; one chain of a runner at a time.
class DraftChain {
 public:
  void begin(Runner& runner);
  // Row i of `logits` gives the next draft of sequence i: in draft_draws, with a 0 in its drafts.
  void draw(Runner& runner, const Tensor& logits, std::span<Sequence* const> sequences);
  // Waits; the drafts that their sequences still have are known then.
  void settle(Runner& runner);
  // The sequence may go away.
  void forget(const Sequence& sequence);

 private:
  struct Draft {
    Sequence* sequence = nullptr;  // null: forgotten
    std::size_t at = 0;
  };
  std::vector<Draft> drafts_;
};

}  // namespace strata
