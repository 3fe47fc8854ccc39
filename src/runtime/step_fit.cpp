#include "runtime/step_fit.h"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

constexpr double kForget = 0.98;  // weight of the past at each step: about the last 50 steps count
constexpr double kRidge = 1e-6;   // of a term's own square: terms that never vary share what they explain
constexpr int kSettled = 3;       // steps after which the fit may call a time an outlier

}  // namespace

void StepFit::add(const Work& work, double seconds) {
  if (const double expected = this->seconds(work); ++steps_ > kSettled && expected > 0) {
    seconds = std::min(seconds, (1 + 3 * noise_) * expected);
    const double off = seconds / expected - 1;
    noise_ = std::clamp(std::sqrt(noise_ * noise_ + 0.05 * (off * off - noise_ * noise_)), 0.02, 0.5);
  }
  const Row x = terms(work);
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) products_[i][j] = kForget * products_[i][j] + x[i] * x[j];
    sums_[i] = kForget * sums_[i] + x[i] * seconds;
  }
  solve();
}

double StepFit::seconds(const Work& work) const {
  const Row x = terms(work);
  double t = 0;
  for (int i = 0; i < kTerms; ++i) t += weights_[i] * x[i];
  return t;
}

// Gaussian elimination; the ridge keeps the pivots of a positive semi-definite matrix above zero.
void StepFit::solve() {
  auto a = products_;
  Row v = sums_;
  for (int i = 0; i < kTerms; ++i) a[i][i] += kRidge * a[i][i] + 1e-12;
  for (int i = 0; i < kTerms; ++i) {
    for (int r = i + 1; r < kTerms; ++r) {
      const double f = a[r][i] / a[i][i];
      for (int c = i; c < kTerms; ++c) a[r][c] -= f * a[i][c];
      v[r] -= f * v[i];
    }
  }
  for (int i = kTerms - 1; i >= 0; --i) {
    for (int c = i + 1; c < kTerms; ++c) v[i] -= a[i][c] * weights_[c];
    weights_[i] = v[i] / a[i][i];
  }
}

}  // namespace strata
