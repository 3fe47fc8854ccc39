// DraftPolicy: how many drafts are worth trying, from measured step times and acceptance.
#pragma once

#include <array>

#include "runtime/sequence.h"

namespace strata {

// A fixed number, or (0) the one with the most expected tokens a second: E(k) / (step(rows) + k * draft), where a step's time is
// fitted as base + slope * rows and E(k) = 1 + p + ... + p^k with p the acceptance. A change must promise 5 %, and any drafts 10 % over
// none, for what is not measured (prompts that the drafter reads too). Never changes output.
class DraftPolicy {
 public:
  // `least_passes`: what a drafter takes for even one draft.
  DraftPolicy(int fixed, int least_passes) : fixed_(fixed), k_(fixed > 0 ? fixed : 1), least_passes_(least_passes) {}

  int wish() const { return k_; }
  // Whether the drafter should follow a new sequence beside `running` others: not when drafts do not pay, but for a few to probe with.
  bool follow(RequestId id, int running) const { return k_ > 0 || running <= 2 || id % 8 == 0; }
  // After a step that only decoded: its sequences, rows and times; drafts tried (sum) and accepted (sum), drafts wished for.
  void record(int sequences, int rows, double step_seconds, double draft_seconds, int wished, int drafted, int accepted);

 private:
  void choose(int sequences);

  static constexpr int kMost = 8;
  int fixed_, k_, least_passes_;
  int steps_ = 0, since_probe_ = 0;
  // Exponentially weighted least squares of seconds over rows.
  double n_ = 0, sum_r_ = 0, sum_t_ = 0, sum_rr_ = 0, sum_rt_ = 0;
  double pass_seconds_ = 0;
  double acceptance_ = 0.7;
};

}  // namespace strata
