// StepCost: what steps take, as measured, and from it how much prefill a step may carry beside decodes.
#pragma once

#include <array>
#include <cstdlib>

namespace strata {

// Most prefill beside decodes, counted in rows at the start of a prompt: a row behind c tokens counts 1 +
// per_token * c, since it reads their keys and values.
struct PrefillLimit {
  double rows = 0;
  double per_token = 0;

  // What `n` rows behind `start` tokens count.
  double count(int n, int start) const;
  // Most rows behind `start` tokens that count no more than `left`, but at least one; 0 when nothing is left.
  int fitting(double left, int start) const;
};

// A step with prefill may take kMost times a step of decodes alone, so that no stream waits ten times its
// usual time for a token even where a prediction is 2.5 times too low. On a device that does nothing else, whose times
// are steady, it may take `steady` seconds where that is more, up to kMostSteady times: the first rows of a
// prompt read nearly all experts, and where one stream decodes quickly, four times its step is not even
// those. Decodes alone: the fastest of the last
// few such steps, one of which is asked for every kProbeEvery steps and when a quarter more or fewer
// sequences decode than in the last one, so that the number is never old. Prefill: what steps took beyond
// that; its growth with the tokens before a row is fitted over many steps, its level follows quickly, more
// quickly up than down. One thread.
class StepCost {
 public:
  static constexpr double kMost = 4, kMostSteady = 8;
  static constexpr double kSteady = 0.040;  // 25 tokens a second: faster than anybody reads
  static constexpr int kProbeEvery = 32;

  explicit StepCost(double steady = 0) : steady_(steady) {}

  // After a step in which `decodes` sequences decoded (with or without drafts) and `prefill_rows` rows of
  // prompts were computed, which had `before` tokens before them in all.
  void record(int decodes, int prefill_rows, double before, double seconds);
  // For a step in which `decodes` sequences decode.
  PrefillLimit limit(int decodes) const;

  double decode_seconds() const;  // of a step of decodes alone; 0 = not known yet
  double most_seconds() const;    // of a step with prefill beside decodes

 private:
  void fit(double x, double y);
  bool as_many(int decodes) const { return 4 * std::abs(decodes - decodes_) <= decodes_; }  // as last

  static constexpr int kWindow = 5;  // decode steps; the fastest counts, since a busy machine only adds
  static constexpr double kForget =
      0.98;  // weight of the past in the fit at each step: about the last 50 count
  static constexpr double kSpread =
      256;  // tokens (standard deviation) that rows must lie apart to tell the growth
  static constexpr double kSurprise = 3;    // a step counts as at most so many times what was expected of it
  static constexpr double kLeastRows = 16;  // so that prompts go on where starting any prefill is dear
  double steady_;
  std::array<double, kWindow> decode_{};
  int decode_steps_ = 0, since_decode_ = 0, decodes_ = 0;
  // Least squares of seconds a row (y) over tokens before a row (x), weighted by age.
  double n_ = 0, sum_x_ = 0, sum_y_ = 0, sum_xx_ = 0, sum_xy_ = 0;
  double row_ = 0, per_token_ = 0;  // seconds a row at a prompt's start; growth with each token before it
};

}  // namespace strata
