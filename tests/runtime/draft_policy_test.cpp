// The choice of drafts, over simulated machines and drafters: time is counted, not measured.
#include "runtime/draft_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace strata {
namespace {

// Seconds of a step: fixed, a decoding sequence, a draft, a prefill row; of the drafter: a pass, a row of it,
// a row of a prompt.
struct Machine {
  const char* name;
  double fixed, decode, draft, prefill, pass, pass_row, head_row;
  double first_right = 0.9, later_right = 0.8;  // acceptance of the first draft and of those after it
};
constexpr Machine kCpu{"cpu", 0.35e-3, 0.30e-3, 0.22e-3, 0.15e-3, 0.10e-3, 0.05e-3, 0.06e-3};
constexpr Machine kGpu{"gpu", 0.80e-3, 0.012e-3, 0.010e-3, 0.002e-3, 0.05e-3, 0.001e-3, 0.0004e-3};
constexpr Machine kHopeless{"hopeless", 0.35e-3, 0.30e-3, 0.22e-3, 0.15e-3,
                            0.10e-3,    0.05e-3, 0.06e-3, 0.05,    0.05};

struct Result {
  double cold = 0, warm = 0;  // tokens a second from the first step on; after the first kWarm steps
};
constexpr int kWarm = 400, kSteps = 1600;
constexpr double kNoise = 0.1;  // of every time, relative

// `concurrency` sequences at once, a new one in the place of each that ends. Step i of every run with a seed
// meets the same disturbances, so that runs can be compared.
Result simulate(const Machine& m, int fixed, int concurrency, unsigned seed) {
  DraftPolicy policy({.fixed = fixed > 0 ? fixed : 0, .least_passes = 2, .reads_prompts = true});
  const bool never = fixed < 0;
  std::mt19937 rng(seed), lengths(seed), clock(seed);
  std::lognormal_distribution<double> jitter(0, kNoise);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto fresh = [&](Sequence& s) {
    s = {};
    s.tokens.assign(25, 1);
    s.prompt_tokens = 25;
    s.limit = 25 + 20 + static_cast<int>(lengths() % 60);
  };
  std::vector<Sequence> all(static_cast<std::size_t>(concurrency));
  for (Sequence& s : all) fresh(s);
  Result r;
  double seconds = 0, warm_seconds = 0;
  int produced = 0, warm_produced = 0;
  for (int i = 0; i < kSteps; ++i) {
    if (i == kWarm) warm_seconds = seconds, warm_produced = produced;
    DraftStep step;
    int followed = 0;
    for (const Sequence& s : all) {
      step.sequences += s.remaining() == 1 ? 1 : 0;
      followed += s.remaining() == 1 && s.followed ? 1 : 0;
    }
    if (!never) policy.begin(step.sequences, followed);
    int seen = followed;
    for (Sequence& s : all) {
      if (s.remaining() > 1) {  // a whole prompt, which also brings its first token
        s.followed = !never && policy.follow(s, concurrency, seen);
        seen += s.followed ? 1 : 0;
        step.prefill_rows += s.remaining();
        step.followed_rows += s.followed ? s.remaining() : 0;
        s.computed = s.known();
        s.tokens.push_back(1);
        ++produced;
        continue;
      }
      const int wish = never || !s.followed ? 0 : std::min(policy.wish(s), s.limit - s.known());
      step.drafts += wish;
      step.drafting += wish > 0 ? 1 : 0;
      step.passes = std::max(step.passes, wish);
      int right = 0;
      while (right < wish && uniform(rng) < (right == 0 ? m.first_right : m.later_right)) ++right;
      step.accepted += right;
      if (!never) policy.accepted(s, wish > 0, std::min(right + 1, wish), right);
      s.computed += 1 + right;
      s.tokens.resize(static_cast<std::size_t>(s.computed + 1), 1);
      produced += 1 + right;
      if (s.known() >= s.limit) {
        if (!never) policy.finished(s);
        fresh(s);
      }
    }
    const double slower = jitter(clock), proposing = jitter(clock), observing = jitter(clock);
    jitter.reset();
    step.forward =
        (m.fixed + m.decode * step.sequences + m.draft * step.drafts + m.prefill * step.prefill_rows) *
        slower;
    if (clock() % 50 == 0) step.forward *= 4;  // another process had the core
    if (step.passes > 0)
      step.propose = std::max(step.passes, 2) * (m.pass + m.pass_row * step.drafting) * proposing;
    step.observe = m.head_row * step.followed_rows * observing;
    if (!never && policy.let_go()) {
      for (Sequence& s : all) s.followed = false;
    }
    if (!never) policy.record(step);
    seconds += step.forward + step.propose + step.observe;
  }
  return {.cold = produced / seconds, .warm = (produced - warm_produced) / (seconds - warm_seconds)};
}

const std::vector<int> kConcurrencies = {1, 2, 3, 4, 5, 7, 8, 11, 16, 23, 32, 33, 64, 90, 128};

class Machines : public testing::TestWithParam<Machine> {};

// Case 26: never below 0.97 of the best fixed number of drafts, in the mean of the runs; never below 0.97 of
// none, not even at the start.
TEST_P(Machines, AutoIsAsFastAsTheBestNumberAtEveryConcurrency) {
  constexpr unsigned kRuns = 4;
  for (const int concurrency : kConcurrencies) {
    Result none, automatic;
    std::array<double, 4> warm{};  // with so many drafts
    for (unsigned seed = 1; seed <= kRuns; ++seed) {
      const Result n = simulate(GetParam(), -1, concurrency, seed),
                   a = simulate(GetParam(), 0, concurrency, seed);
      EXPECT_GE(a.cold, 0.96 * n.cold) << concurrency << " at once, seed " << seed;
      none.cold += n.cold, automatic.cold += a.cold, automatic.warm += a.warm;
      warm[0] += n.warm;
      for (std::size_t k = 1; k < warm.size(); ++k)
        warm[k] += simulate(GetParam(), static_cast<int>(k), concurrency, seed).warm;
    }
    EXPECT_GE(automatic.cold, 0.97 * none.cold) << concurrency << " at once";
    EXPECT_GE(automatic.warm, 0.97 * *std::max_element(warm.begin(), warm.end()))
        << concurrency << " at once";
  }
}

// The bound can fail: a policy whose drafts are always on is slow where they do not pay, one whose drafts are
// never on where they do.
TEST(DraftPolicy, PlantedAlwaysAndNever) {
  EXPECT_LT(simulate(kHopeless, 2, 4, 1).warm, 0.97 * simulate(kHopeless, -1, 4, 1).warm);
  EXPECT_LT(simulate(kGpu, -1, 4, 1).warm, 0.97 * simulate(kGpu, 2, 4, 1).warm);
}

INSTANTIATE_TEST_SUITE_P(DraftPolicy, Machines, testing::Values(kCpu, kGpu, kHopeless),
                         [](const auto& machine) { return std::string(machine.param.name); });

}  // namespace
}  // namespace strata
