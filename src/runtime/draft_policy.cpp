#include "runtime/draft_policy.h"

#include <algorithm>

namespace strata {
namespace {

constexpr double kForget = 0.98;   // weight of the past at each step: about the last 50 steps count
constexpr int kProbeEvery = 64;    // steps without drafts after which one draft is tried again

}  // namespace

void DraftPolicy::record(int sequences, int rows, double step_seconds, double draft_seconds, int wished, int drafted, int accepted) {
  if (fixed_ > 0 || sequences == 0) return;
  for (double* sum : {&n_, &sum_r_, &sum_t_, &sum_rr_, &sum_rt_}) *sum *= kForget;
  n_ += 1;
  sum_r_ += rows;
  sum_t_ += step_seconds;
  sum_rr_ += static_cast<double>(rows) * rows;
  sum_rt_ += rows * step_seconds;
  if (wished > 0) {
    const double each = draft_seconds / std::max(wished, least_passes_);
    pass_seconds_ = pass_seconds_ == 0 ? each : pass_seconds_ + 0.1 * (each - pass_seconds_);
  }
  if (drafted > 0) acceptance_ += 0.1 * (static_cast<double>(accepted) / drafted - acceptance_);
  if (++steps_ % 8 == 0) choose(sequences);
}

void DraftPolicy::choose(int sequences) {
  const double spread = n_ * sum_rr_ - sum_r_ * sum_r_;
  const double mean = sum_t_ / n_;
  // Without a spread of row counts, assume that half of a step is its rows'.
  double slope = spread > 1e-6 * sum_rr_ ? (n_ * sum_rt_ - sum_r_ * sum_t_) / spread : 0.5 * mean / (sum_r_ / n_);
  slope = std::clamp(slope, 0.0, mean / (sum_r_ / n_));
  const double base = mean - slope * sum_r_ / n_;
  const auto rate = [&](int k) {
    double expected = 0, reach = 1;
    for (int i = 0; i <= k; ++i, reach *= std::clamp(acceptance_, 0.01, 0.99)) expected += reach;
    const int passes = k > 0 ? std::max(k, least_passes_) : 0;
    return expected / (base + slope * sequences * (1 + k) + passes * pass_seconds_);
  };
  int best = k_;
  for (int k = 0; k <= kMost; ++k) {
    if (rate(k) > 1.05 * rate(best)) best = k;
  }
  if (rate(best) < 1.1 * rate(0)) best = 0;
  if (best == 0 && ++since_probe_ >= kProbeEvery / 8) {
    best = 1;
    since_probe_ = 0;
  }
  k_ = best;
}

}  // namespace strata
