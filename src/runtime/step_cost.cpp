#include "runtime/step_cost.h"

#include <algorithm>
#include <cmath>

namespace strata {

double PrefillLimit::count(int n, int start) const { return n + per_token * n * (start + 0.5 * (n - 1)); }

int PrefillLimit::fitting(double left, int start) const {
  if (left <= 0) return 0;
  // The positive root of per_token / 2 * n^2 + (1 + per_token * (start - 1/2)) * n = left.
  const double a = 0.5 * per_token, b = 1 + per_token * (start - 0.5);
  const double n = 2 * left / (b + std::sqrt(b * b + 4 * a * left));
  return std::max(1, static_cast<int>(std::min(n + 1e-9, 1e9)));
}

double StepCost::decode_seconds() const {
  const int known = std::min(decode_steps_, kWindow);
  return known == 0 ? 0 : *std::min_element(decode_.begin(), decode_.begin() + known);
}

double StepCost::most_seconds() const {
  return std::max(kMost * decode_seconds(), std::min(kMostSteady * decode_seconds(), steady_));
}

void StepCost::record(int decodes, int prefill_rows, double before, double seconds) {
  if (decodes == 0)
    return;  // a large step of prompts alone is cheaper a row than the few rows beside decodes
  if (prefill_rows == 0) {
    if (!as_many(decodes)) decode_steps_ = 0;
    decodes_ = decodes;
    decode_[static_cast<std::size_t>(decode_steps_ % kWindow)] = seconds;
    decode_steps_ = decode_steps_ + 1 < 2 * kWindow ? decode_steps_ + 1 : kWindow;
    since_decode_ = 0;
    return;
  }
  ++since_decode_;
  const double rows = prefill_rows, x = before / rows;
  const double y = std::max(seconds - decode_seconds(), 0.1 * seconds) / rows;
  fit(x, n_ > 0 ? std::min(y, kSurprise * row_ * (1 + per_token_ * x)) : y);
}

void StepCost::fit(double x, double y) {
  for (double* sum : {&n_, &sum_x_, &sum_y_, &sum_xx_, &sum_xy_}) *sum *= kForget;
  n_ += 1;
  sum_x_ += x;
  sum_y_ += y;
  sum_xx_ += x * x;
  sum_xy_ += x * y;
  const double mean_x = sum_x_ / n_, mean_y = sum_y_ / n_, spread = sum_xx_ / n_ - mean_x * mean_x;
  double growth = per_token_;
  if (spread > kSpread * kSpread) {
    const double slope = std::max((sum_xy_ / n_ - mean_x * mean_y) / spread, 0.0);
    growth = slope / std::max(mean_y - slope * mean_x, 0.2 * mean_y);  // a row is never nearly free
  }
  if (n_ == 1) row_ = y / (1 + growth * x);
  row_ *= (1 + per_token_ * x) / (1 + growth * x);  // a new growth leaves what is expected here as it is
  per_token_ = growth;
  const double seen = y / (1 + growth * x);
  row_ += (seen > row_ ? 0.5 : 0.25) * (seen - row_);
}

PrefillLimit StepCost::limit(int decodes) const {
  if (decode_steps_ == 0 || since_decode_ >= kProbeEvery || !as_many(decodes)) return {};
  if (n_ == 0) return {kLeastRows, 0};
  return {std::max(kLeastRows, (most_seconds() - decode_seconds()) / row_), per_token_};
}

}  // namespace strata
