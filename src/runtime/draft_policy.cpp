#include "runtime/draft_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace strata {
namespace {

constexpr double kBegin = 1.02, kEnd = 1.00, kChange = 1.02;  // of R: see the header
constexpr int kTrialSteps = 16;  // by turns two steps without drafts and two with
constexpr int kTrialDrafts = 2;  // at least
constexpr int kFirstTrial = 4, kLeastInterval = 32, kMostInterval = 4096;  // steps
constexpr int kFewSequences = 4;                 // drafts begin on trust for so many
constexpr double kFewRow = 0.4, kManyRow = 0.9;  // of a step's time, until a trial has measured it
constexpr double kUnknown = 0.09;                // variance of that
constexpr double kDrift = 0.01;                  // what kDriftSteps steps or another concurrency add to it
constexpr int kDriftSteps = 256;
constexpr double kPrior = 4, kMemory = 100;  // drafts that an expectation counts for; that are remembered
constexpr double kLean = 0.7;  // of what following a sequence costs: what it has to gain, as it teaches too
constexpr int kRest = 32;      // steps after which a sequence whose drafts fail gets one again

}  // namespace

int DraftPolicy::level_of(int sequences) const {
  const int upper = 1 << level_, lower = upper / 2 + 1;
  if (sequences <= 1.125 * upper && sequences >= 0.875 * lower) return level_;
  return std::min(static_cast<int>(std::bit_width(static_cast<unsigned>(std::max(sequences, 1) - 1))),
                  static_cast<int>(levels_.size()) - 1);
}

// From the nearest concurrency with a trial, if there is none here: a row's seconds are taken to be the same.
DraftPolicy::Estimate DraftPolicy::row(int sequences) const {
  const int level = level_of(sequences);
  for (int distance = 0; distance < static_cast<int>(levels_.size()); ++distance) {
    for (const int at : {level - distance, level + distance}) {
      if (at < 0 || at >= static_cast<int>(levels_.size())) continue;
      const Level& l = levels_[static_cast<std::size_t>(at)];
      if (l.variance == 0) continue;
      if (distance == 0) return {l.row, l.variance};
      return {std::min(l.row * l.token / (step(sequences) / sequences), 2.0), l.variance + kDrift * distance};
    }
  }
  return {sequences <= kFewSequences ? kFewRow : kManyRow, kUnknown};
}

// Half of a pass is taken for its rows'.
double DraftPolicy::pass(int drafting) const {
  return pass_seconds_ * (0.5 + 0.5 * drafting / pass_drafting_);
}

// A position hardly tried is as good as drafts are on the whole.
double DraftPolicy::right(int position) const {
  const auto at = static_cast<std::size_t>(position);
  const double known = at_tries_[at] / (at_tries_[at] + kPrior);
  return std::clamp(known * at_[at] + (1 - known) * acceptance_, 0.01, 0.99);
}

double DraftPolicy::expected(int drafts) const {
  double tokens = 1, reach = 1;
  for (int i = 0; i < drafts; ++i) tokens += reach *= right(i);
  return tokens;
}

double DraftPolicy::step(int sequences) const {
  return std::max(fit_.seconds({.sequences = static_cast<double>(sequences)}), 1e-9);
}

double DraftPolicy::gain(int drafts, int sequences, int drafting, double row) const {
  if (drafts == 0 || drafting == 0) return 1;
  const double share = static_cast<double>(drafting) / sequences;
  return (1 + share * (expected(drafts) - 1)) /
         (1 + share * drafts * row + passes(drafts) * pass(drafting) / step(sequences));
}

int DraftPolicy::best(int sequences, int present, double row) const {
  const auto of = [&](int k) { return gain(k, sequences, sequences, row); };
  int best = present;
  for (int k = 1; k <= kMost; ++k) {
    if (of(k) > of(best) * (best == 0 ? kBegin : kChange)) best = k;
  }
  return of(best) < kEnd ? 0 : best;
}

int DraftPolicy::best(int sequences, int present) const {
  if (fit_.empty()) return sequences <= kFewSequences ? 1 : 0;
  const Estimate row = this->row(sequences);
  return best(sequences, present, row.mean + (present == 0 ? std::sqrt(row.variance) : 0));
}

double DraftPolicy::trial_cost(int sequences, int drafting) const {
  const double lost = kTrialDrafts * row(sequences).mean - (expected(kTrialDrafts) - 1);
  return kTrialSteps / 2 *
         (passes(kTrialDrafts) * pass(drafting) +
          std::max(lost, 0.0) * step(sequences) * drafting / sequences);
}

void DraftPolicy::begin(int sequences, int followed) {
  now_ = options_.fixed;
  if (options_.fixed > 0 || sequences == 0) return;
  sequences_ = sequences;
  level_ = level_of(sequences);
  Level& l = level();
  if (l.drafts < 0)
    l = {.drafts = best(sequences, 0), .interval = kLeastInterval, .next_trial = steps_ + kFirstTrial};
  if (trial_ > 0 && std::abs(trial_level_ - level_) > 1) {
    trial_ = 0;
    l.next_trial = steps_ + l.interval;
  }
  if (trial_ == 0 && steps_ >= l.next_trial && followed > 0 && (l.drafts > 0 || may_spend(0))) {
    trial_ = 1;
    trial_level_ = level_;
    trial_drafts_ = std::max(l.drafts, kTrialDrafts);
    trial_rows_ = 0;
  }
  if (trial_ > 0)
    now_ = (trial_ - 1) / 2 % 2 == 1 ? trial_drafts_ : 0;
  else
    now_ = gain(l.drafts, sequences, followed) < 1 ? 0 : l.drafts;  // no drafts if too few are followed
}

int DraftPolicy::wish(const Sequence& s) const {
  if (options_.fixed > 0 || now_ == 0 || trial_ > 0) return now_;
  if (s.draft_rest >= kRest) return 1;
  // A draft is worth its row when it is right more often than a token costs of the time that a row takes.
  const double own = (s.draft_hits + 4 * acceptance_) / (s.draft_tries + 4) / std::max(acceptance_, 0.01);
  const double worth = row(sequences_).mean * gain(now_, sequences_, sequences_);
  double reach = 1;
  for (int k = 0; k < now_; ++k) {
    reach *= std::min(right(k) * own, 1.0);
    if (reach < worth) return k;
  }
  return now_;
}

bool DraftPolicy::follow(const Sequence& s, int running, int followed) {
  if (options_.fixed > 0 || !options_.reads_prompts) return true;
  if (fit_.empty()) return followed < kFewSequences;
  const double cost = s.remaining() * head_row_;
  const Level& l = levels_[static_cast<std::size_t>(level_of(running))];
  const int drafts = l.drafts < 0 ? best(running, 0) : l.drafts;
  if (drafts == 0) {
    const bool spend = steps_ >= l.next_trial && may_spend(cost + trial_cost(running, followed + 1));
    if (spend) promised_ += cost;
    return spend;
  }
  const double output = std::min<double>(output_, s.limit - s.known()), token = step(running) / running;
  return output * token * (1 - 1 / gain(drafts, running, running)) > kLean * cost;
}

bool DraftPolicy::let_go() const {
  return options_.reads_prompts && options_.fixed == 0 && !fit_.empty() && trial_ == 0 &&
         level().drafts == 0 && (steps_ < level().next_trial || !may_spend(0));
}

void DraftPolicy::accepted(Sequence& s, bool wished, int tried, int accepted) {
  if (options_.fixed > 0) return;
  s.draft_rest = wished || now_ == 0 ? 0 : s.draft_rest + 1;
  if (tried == 0) return;
  s.draft_tries = 0.9F * s.draft_tries + static_cast<float>(tried);
  s.draft_hits = 0.9F * s.draft_hits + static_cast<float>(accepted);
  tries_ = std::min(tries_ + tried, kMemory);
  acceptance_ += (accepted - tried * acceptance_) / tries_;
  for (int i = 0; i < std::min(tried, kMost); ++i) {
    const auto at = static_cast<std::size_t>(i);
    at_tries_[at] = std::min(at_tries_[at] + 1, kMemory);
    at_[at] += ((i < accepted ? 1 : 0) - at_[at]) / at_tries_[at];
  }
}

void DraftPolicy::finished(const Sequence& s) {
  if (s.output_tokens() > 0) output_ += 0.1 * (s.output_tokens() - output_);
}

void DraftPolicy::record(const DraftStep& step) {
  if (options_.fixed > 0) return;
  busy_ += step.forward + step.propose + step.observe;
  const auto smooth = [](double& mean, double x) {
    mean = mean == 0 ? x : mean + 0.2 * (std::min(x, 3 * mean) - mean);
  };
  if (step.followed_rows > 0) smooth(head_row_, step.observe / step.followed_rows);
  const bool paying = step.sequences > 0 && level().drafts > 0;
  promised_ = 0;
  if (!paying) {  // what drafts cost less what they saved
    const double token = step.sequences > 0 ? this->step(step.sequences) / step.sequences : 0;
    spent_ += step.observe + step.propose + step.drafts * std::max(fit_.draft_seconds(), 0.0) -
              step.accepted * token;
    spent_ = std::max(spent_, 0.0);
  }
  if (step.sequences == 0 || step.prefill_rows > 2 * (step.sequences + step.drafts) + 32) return;
  ++steps_;
  fit_.add({.sequences = static_cast<double>(step.sequences),
            .drafts = static_cast<double>(step.drafts),
            .prefill_rows = static_cast<double>(step.prefill_rows)},
           step.forward);
  if (step.passes > 0 && step.drafting > 0) {
    smooth(pass_seconds_, step.propose / passes(step.passes));
    pass_drafting_ += 0.2 * (step.drafting - pass_drafting_);
  }
  if (trial_ > 0) {
    trial_rows_ += step.drafts;
    if (++trial_ > kTrialSteps) end_trial();
  } else if (steps_ % 8 == 0) {
    level().drafts = best(sequences_, level().drafts);
  }
}

void DraftPolicy::end_trial() {
  trial_ = 0;
  Level& l = levels_[static_cast<std::size_t>(trial_level_)];
  if (trial_rows_ > 0) {
    // A row's time is the difference of the two halves of the trial, each a mean of so many steps, over the
    // drafts a sequence.
    const double half = 0.5 * kTrialSteps, drafts = trial_rows_ / (half * sequences_);
    const double seen = std::clamp(fit_.draft_seconds() * sequences_ / step(sequences_), 0.02, 2.0);
    const double noise = 2 / half * std::pow(fit_.noise() / drafts, 2);
    Estimate known = row(sequences_);
    known.variance += kDrift * std::min(static_cast<double>(steps_ - l.last_trial) / kDriftSteps, 1.0);
    const double trust = known.variance / (known.variance + noise);  // a Kalman filter of one number
    l.row = known.mean + trust * (seen - known.mean);
    l.variance = known.variance * (1 - trust);
    l.token = step(sequences_) / sequences_;
  }
  const bool drafted = l.drafts > 0;
  l.drafts = best(sequences_, l.drafts);
  const Estimate known = row(sequences_);
  const bool may_pay = best(sequences_, 0, known.mean - std::sqrt(known.variance)) > 0;
  l.interval = drafted == (l.drafts > 0) ? std::min(2 * l.interval, kMostInterval) : kLeastInterval;
  l.last_trial = steps_;
  l.next_trial = steps_ + (l.drafts == 0 && may_pay ? 0 : l.interval);
}

}  // namespace strata
