// Acceptance by chance, for benchmarks with dummy weights: lengths follow the probability, accepted drafts
// are the text, and a seed repeats it.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/device_like_ops.h"
#include "runtime/engine_fixture.h"

namespace strata {
namespace {

constexpr int kDrafts = 3;

int drafted(int position) { return 2 + position * 37 % 290; }

// Drafts that have nothing to do with the model's text.
class ByPosition final : public Drafter {
 public:
  void propose(std::span<const DraftWish> wishes) override {
    for (const DraftWish& w : wishes)
      for (int i = 0; i < w.drafts; ++i) w.sequence->drafts.push_back(drafted(w.sequence->known() + i));
  }
};

EngineOptions simulating(double acceptance, bool lazy = true) {
  EngineOptions o;
  o.speculate = "ngram";
  o.draft_tokens = kDrafts;
  o.lazy_slots = lazy;
  o.simulate_acceptance = acceptance;
  return o;
}

DrafterFactory by_position() {
  return [](Runner&) { return std::make_unique<ByPosition>(); };
}

Request endless(int seed, int tokens) {
  Request r = greedy(test_prompt(40, seed), tokens);
  r.sampling.ignore_eos = true;
  r.sampling.seed = seed;
  return r;
}

const TestModel& on(bool device) {
  static const TestModel drawing_together =
      load_test_model("qwen3_next", std::make_shared<DeviceLikeOps>(CpuOptions{.threads = 2}));
  return device ? drawing_together : test_model("qwen3_next");
}

// Of drafts looked at in turn, the share `acceptance` is accepted at every position of a block: a number that
// served a whole block, or drafts looked at after a refused one, would show.
TEST(SimulatedAcceptance, FollowsTheProbability) {
  for (const double p : {0.0, 0.3, 0.8, 1.0}) {
    for (const bool device : {false, true}) {
      EngineFixture e(on(device), simulating(p), by_position());
      for (int seed = 0; seed < 16; ++seed) e.submit(endless(seed, 120));
      e.run();
      const EngineMetrics& m = e.core().metrics();
      for (int i = 0; i < kDrafts; ++i) {
        const auto n = static_cast<double>(m.drafted_at[static_cast<std::size_t>(i)]);
        const auto accepted = static_cast<double>(m.accepted_at[static_cast<std::size_t>(i)]);
        if (p > 0 || i == 0) {
          ASSERT_GT(n, 10);
        }
        EXPECT_NEAR(accepted, p * n, 4 * std::sqrt(p * (1 - p) * n)) << p << " at " << i << " of " << n;
      }
      EXPECT_EQ(m.output_tokens, 16 * 120);
    }
  }
}

TEST(SimulatedAcceptance, AcceptedDraftsAreTheText) {
  EngineFixture e("qwen3_next", simulating(1), by_position());
  const Answer a = e.solo(endless(1, 1 + 4 * 8));
  ASSERT_EQ(a.tokens.size(), 33U);
  // The prompt's step draws one; then three drafts and one drawn behind them, by turns.
  for (int i = 1; i < 33; ++i)
    if (i % 4 != 0) {
      EXPECT_EQ(a.tokens[static_cast<std::size_t>(i)], drafted(40 + i)) << i;
    }
  EXPECT_EQ(a.usage.accepted_tokens, 24);
  EXPECT_EQ(a.usage.verify_steps, 8);

  EngineFixture never("qwen3_next", simulating(0), by_position()), plain("qwen3_next", {});
  EXPECT_EQ(never.solo(endless(2, 40)), plain.solo(endless(2, 40)));
}

TEST(SimulatedAcceptance, ASeedRepeatsTheTextInAnyCompany) {
  EngineFixture alone("qwen3_next", simulating(0.5), by_position());
  const Answer first = alone.solo(endless(3, 60));
  EXPECT_EQ(alone.solo(endless(3, 60)), first);
  Request other = endless(3, 60);
  other.sampling.seed = 4;
  EXPECT_NE(alone.solo(other), first);
  EngineFixture eager("qwen3_next", simulating(0.5, false), by_position());
  EXPECT_EQ(eager.solo(endless(3, 60)), first);
  for (const bool device : {false, true}) {
    EngineFixture together(on(device), simulating(0.5), by_position());
    for (int seed = 0; seed < 5; ++seed) together.submit(endless(seed, 60));
    together.run();
    EXPECT_EQ(together.answers[3], first);
  }
}

TEST(SimulatedAcceptance, KeepsNoConstraint) {
  struct Anything final : Constraint {
    void allowed(std::span<std::uint32_t>) const override {}
    bool accept(int) override { return true; }
    bool complete() const override { return true; }
    bool closed() const override { return false; }
    std::shared_ptr<Constraint> clone() const override { return std::make_shared<Anything>(*this); }
  };
  EngineFixture e("qwen3_next", simulating(0.5), by_position());
  Request r = endless(1, 4);
  r.constraint = std::make_shared<Anything>();
  EXPECT_EQ(e.submit(std::move(r)), -1);
  EXPECT_NE(e.error.find("constraint"), std::string::npos);
}

}  // namespace
}  // namespace strata
