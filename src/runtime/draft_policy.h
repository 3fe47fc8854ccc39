// DraftPolicy: how many drafts are worth trying, from measured step times and acceptance.
#pragma once

#include <algorithm>
#include <array>

#include "runtime/sequence.h"
#include "runtime/step_fit.h"

namespace strata {

// What a step did and took. Times in seconds.
struct DraftStep {
  int sequences = 0;  // that decoded
  int drafting = 0;   // of them, those that had drafts
  int drafts = 0;     // rows
  int accepted = 0;   // of them
  int prefill_rows = 0;
  int followed_rows = 0;            // of them, those of sequences that the drafter follows
  int passes = 0;                   // of the drafter: the most drafts wished for
  double forward = 0;               // the model's pass
  double propose = 0, observe = 0;  // the drafter's passes before it, and after it
};

// A fixed number, or (0) chosen for each concurrency. With k drafts for all S sequences a step brings E(k) =
// 1 + q1 + q1 q2 + ... tokens for one (q: acceptance by position) and takes 1 + k * row + passes(k) * pass
// times as long as one without, so drafts are worth R(k) = E(k) / (1 + k * row + passes * pass). `row` is
// measured in trials, sixteen steps in which drafts are on and off by turns, so that a machine that gets
// slower or faster favours neither side. Drafts begin when R promises 2 % over none even if a row costs a
// standard deviation more than measured, and end below none; another number must promise 2 % over the present
// one. While they would begin if a row cost a deviation less, trial follows trial, else ever more rarely. A
// sequence gets as many drafts as its own acceptance makes worth their rows.
//
// A drafter that reads the prompt too (an MTP head) is paid for that at admission: a sequence is followed
// when what its expected output gains is about as much. While drafts do not pay, all the drafter's work
// together, trials too, is kept below 1 % of the time: a sequence is followed when a trial is due that can be
// paid for, and no longer. One thread; never changes output.
class DraftPolicy {
 public:
  struct Options {
    int fixed = 0;               // drafts; 0 = chosen
    int least_passes = 1;        // what the drafter takes for even one draft
    bool reads_prompts = false;  // it must follow a sequence from its prompt on
  };
  explicit DraftPolicy(const Options& options) : options_(options) {}

  // Before a step is planned: sequences that decode, and those of them that the drafter follows.
  void begin(int sequences, int followed);
  // Drafts that the sequence should have in this step.
  int wish(const Sequence& sequence) const;
  // Whether the drafter should follow a sequence about to run: one of `running`, of which it follows
  // `followed` others.
  bool follow(const Sequence& sequence, int running, int followed);
  // Whether what followed sequences cost is to be saved: none of them should be followed on.
  bool let_go() const;

  // After a step: for each sequence, drafts tried until the first wrong one (`wished`: it was asked for
  // some), and accepted ones.
  void accepted(Sequence& sequence, bool wished, int tried, int accepted);
  void finished(const Sequence& sequence);
  void record(const DraftStep& step);

  int drafts() const { return now_; }  // of the step begun, for a sequence that is right as often as most

 private:
  static constexpr int kMost = 8;
  // What is known of a range of concurrencies: 1, 2, 3 to 4, 5 to 8, ...
  struct Level {
    double row = 0, variance = 0;  // of `row` above, and of what is known of it; 0 = no trial yet
    double token = 0;  // seconds of a step without drafts over its sequences, when that was measured
    int drafts = -1;   // chosen; -1 = not chosen yet
    int interval = 0, last_trial = 0, next_trial = 0;  // steps
  };
  struct Estimate {
    double mean, variance;
  };
  // The present level still, a little beyond its bounds.
  int level_of(int sequences) const;
  Level& level() { return levels_[static_cast<std::size_t>(level_)]; }
  const Level& level() const { return levels_[static_cast<std::size_t>(level_)]; }
  Estimate row(int sequences) const;
  double pass(int drafting) const;  // seconds
  int passes(int drafts) const { return drafts > 0 ? std::max(drafts, options_.least_passes) : 0; }
  double right(int position) const;   // acceptance of drafts there
  double expected(int drafts) const;  // tokens
  double step(int sequences) const;   // seconds of a step without drafts
  // R(k), with drafts for so many of the sequences and for a row that takes `row`.
  double gain(int drafts, int sequences, int drafting, double row) const;
  double gain(int drafts, int sequences, int drafting) const {
    return gain(drafts, sequences, drafting, row(sequences).mean);
  }
  // The number to go on with, after `present`; for a row that takes `row`.
  int best(int sequences, int present, double row) const;
  int best(int sequences, int present) const;
  // Seconds that a trial with drafts for so many of the sequences is expected to lose.
  double trial_cost(int sequences, int drafting) const;
  bool may_spend(double seconds) const {
    return spent_ + promised_ + seconds < kShare * busy_ + kGrant * step(sequences_);
  }
  void end_trial();

  static constexpr double kShare = 0.01;  // of the time, for drafts while they do not pay
  static constexpr double kGrant = 2;     // steps' time beside it, for the first trial

  Options options_;
  int sequences_ = 0, level_ = 0, now_ = 0;
  std::array<Level, 12> levels_;
  StepFit fit_;
  int steps_ = 0;
  int trial_ = 0, trial_level_ = 0, trial_drafts_ = 0, trial_rows_ = 0;  // trial_: its step, 0 = none
  double pass_seconds_ = 0, pass_drafting_ = 1;                          // of one pass, for so many sequences
  double head_row_ = 0;                          // seconds of the drafter for a prompt's row
  double busy_ = 0, spent_ = 0, promised_ = 0;   // of all; of drafts while they do not pay, and about to be
  double output_ = 64;                           // tokens of an answer
  double acceptance_ = 0.7, tries_ = 4;          // of all drafts, and how many of them it is a mean of
  std::array<double, kMost> at_{}, at_tries_{};  // acceptance by position
};

}  // namespace strata
