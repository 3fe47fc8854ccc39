// DraftPolicy: how many drafts are worth trying, from measured step times and acceptance.
#pragma once

#include <array>

#include "runtime/sequence.h"

namespace strata {

// A fixed number, or (0) the one with the most expected tokens a second: E(k) / (step(rows) + k * draft), where a step's time is
// fitted as base + slope * rows and E(k) = 1 + p + ... + p^k with p the acceptance. A change must promise 5 %. Never changes output.
class DraftPolicy {
 public:
  explicit DraftPolicy(int fixed) : fixed_(fixed), k_(fixed > 0 ? fixed : 1) {}

  int wish() const { return k_; }
  // After a step that only decoded: its sequences, rows and times; drafts tried (sum) and accepted (sum), draft passes run.
  void record(int sequences, int rows, double step_seconds, double draft_seconds, int passes, int drafted, int accepted);

 private:
  void choose(int sequences);

  static constexpr int kMost = 8;
  int fixed_, k_;
  int steps_ = 0, since_probe_ = 0;
  // Exponentially weighted least squares of seconds over rows.
  double n_ = 0, sum_r_ = 0, sum_t_ = 0, sum_rr_ = 0, sum_rt_ = 0;
  double pass_seconds_ = 0;
  double acceptance_ = 0.7;
};

}  // namespace strata
