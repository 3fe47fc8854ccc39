// StepFit: what a step takes, as a running least-squares fit of its seconds over what it computes.
#pragma once

#include <array>

namespace strata {

// seconds = a + b * sequences + c * drafts + e * prefill rows, by exponentially weighted least squares
// (Haykin, Adaptive Filter Theory: recursive least squares by its normal equations). A time far above what
// the fit expects is another process's: it counts as one of three standard deviations.
class StepFit {
 public:
  struct Work {
    double sequences = 0, drafts = 0, prefill_rows = 0;
  };
  void add(const Work& work, double seconds);
  double seconds(const Work& work) const;
  // Seconds of one more draft.
  double draft_seconds() const { return weights_[2]; }
  // Standard deviation of a step's time, relative to it.
  double noise() const { return noise_; }
  bool empty() const { return steps_ == 0; }

 private:
  static constexpr int kTerms = 4;
  using Row = std::array<double, kTerms>;
  static Row terms(const Work& w) { return {1, w.sequences, w.drafts, w.prefill_rows}; }
  void solve();

  int steps_ = 0;
  double noise_ = 0.2;
  std::array<Row, kTerms> products_{};  // sums of terms by terms
  Row sums_{}, weights_{};              // sums of terms by seconds; a, b, c, e
};

}  // namespace strata
