// Constraints in the engine: honoured on every draft row, ends where they end, the same tokens with drafts
// and without.
#include "runtime/constraint.h"

#include <gtest/gtest.h>

#include "runtime/engine_fixture.h"

namespace strata {
namespace {

// Four tokens divisible by `period`, then four with remainder 1, and so on, so that a draft of what is likely
// is often not allowed. The text may end after `least` tokens and must after `most`.
class Rhythm final : public Constraint {
 public:
  Rhythm(int period, int least, int most) : period_(period), least_(least), most_(most) {}
  void allowed(std::span<std::uint32_t> mask) const override {
    if (closed()) return;
    for (std::size_t t = 0; t < mask.size() * 32; ++t)
      if (fits(static_cast<int>(t))) mask[t / 32] |= 1U << (t % 32);
  }
  bool accept(int token) override {
    if (closed() || !fits(token)) return false;
    ++taken_;
    return true;
  }
  bool complete() const override { return taken_ >= least_; }
  bool closed() const override { return taken_ >= most_; }
  std::shared_ptr<Constraint> clone() const override { return std::make_shared<Rhythm>(*this); }

 private:
  bool fits(int token) const { return token % period_ == taken_ / 4 % period_; }
  int period_, least_, most_, taken_ = 0;
};

Request constrained(float temperature, int least, int most, int max_tokens = 200) {
  Request r = greedy(test_prompt(40, 5), max_tokens);
  r.sampling.temperature = temperature;
  r.sampling.seed = 11;
  r.constraint = std::make_shared<Rhythm>(3, least, most);
  return r;
}

void expect_rhythm(const Answer& answer, std::size_t tokens) {
  ASSERT_LE(tokens, answer.tokens.size());
  for (std::size_t i = 0; i < tokens; ++i)
    ASSERT_EQ(answer.tokens[i] % 3, static_cast<int>(i / 4 % 3)) << "token " << i;
}

TEST(Constraints, SameTokensWithDraftsAndWithout) {
  for (const std::string model : {"tiny-hybrid", "qwen3_5_moe"})
    for (const float temperature : {0.F, 1.F}) {
      EngineFixture plain(model, {});
      const Answer wanted = plain.solo(constrained(temperature, 90, 90));
      expect_rhythm(wanted, 90);
      EXPECT_EQ(wanted.tokens.size(), 90U);
      EXPECT_EQ(wanted.finish, FinishReason::kStop) << "closed: it ends without an end token";
      for (const std::string speculate : {"mtp", "ngram"}) {
        EngineOptions options;
        options.speculate = speculate;
        options.draft_tokens = 3;
        EngineFixture drafting(model, options);
        const Answer got = drafting.solo(constrained(temperature, 90, 90));
        EXPECT_EQ(got.tokens, wanted.tokens)
            << model << " " << speculate << " at temperature " << temperature;
        EXPECT_EQ(got.finish, wanted.finish);
        if (speculate == "mtp") {
          EXPECT_GT(got.usage.drafted_tokens, 0);
        }
      }
    }
}

TEST(Constraints, EndTokensComeWhereTheTextIsCompleteAndNowhereElse) {
  EngineFixture engine("tiny-hybrid", {});
  const int end = test_model("tiny-hybrid").info.end_tokens.front();
  Request r = constrained(0, 30, 1000);
  r.sampling.logit_bias = {{end, 100.F}};  // wants to end at once
  const Answer wishes = engine.solo(r);
  ASSERT_EQ(wishes.tokens.size(), 31U);
  expect_rhythm(wishes, 30);
  EXPECT_EQ(wishes.tokens.back(), end);
  EXPECT_EQ(wishes.finish, FinishReason::kStop);

  Request ignoring = constrained(0, 5, 12);
  ignoring.sampling.ignore_eos = true;
  ignoring.sampling.logit_bias = {{end, 100.F}};
  const Answer on = engine.solo(ignoring);
  expect_rhythm(on, 12);
  EXPECT_EQ(on.tokens.size(), 12U);
  EXPECT_EQ(on.finish, FinishReason::kStop);

  const Answer cut = engine.solo(constrained(0, 30, 40, 10));
  EXPECT_EQ(cut.tokens.size(), 10U);
  EXPECT_EQ(cut.finish, FinishReason::kLength);

  Request late = constrained(0, 5, 12);
  late.sampling.min_tokens = 50;  // nothing may follow: it ends all the same
  EXPECT_EQ(engine.solo(late).tokens.size(), 12U);
}

}  // namespace
}  // namespace strata
