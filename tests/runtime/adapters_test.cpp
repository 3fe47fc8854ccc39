// Adapters in the engine: a row of one never touches another's, whatever is in the batch, in the cache or in the slots.
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/engine_fixture.h"

namespace strata {
namespace {

const std::filesystem::path kFolder = STRATA_SOURCE_DIR "/models/tiny-hybrid/lora";

Request with_adapter(std::vector<int> prompt, const std::string& adapter, int max_tokens = 12) {
  Request r = greedy(std::move(prompt), max_tokens);
  r.sampling.ignore_eos = true;
  r.adapter = adapter;
  return r;
}

void load(EngineFixture& e, const std::string& name, const std::string& folder, bool replace = false) {
  const auto loaded = e.core().load_adapter(name, kFolder / folder, replace);
  ASSERT_TRUE(loaded) << loaded.error().message;
}

void expect_nothing_held(EngineFixture& e) {
  const EngineMetrics& m = e.core().metrics();
  EXPECT_EQ(m.pages_used, 0);
  EXPECT_EQ(m.slots_used, 0);
  EXPECT_EQ(m.adapters_in_use, 0);
}

// Case 44: base, bracket and polite requests in one batch, drafts and prefix cache on, twice; each answer is its solo run's, and
// the base's that of an engine that cannot load adapters at all.
TEST(Adapters, MixedBatchesEqualSoloRuns) {
  std::vector<Request> requests;
  const auto shared = test_prompt(70, 1, 1000);
  for (int i = 0; i < 16; ++i) {
    auto prompt = shared;
    const auto own = test_prompt(5 + 7 * i, 50 + i, 1000);
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(with_adapter(prompt, i % 3 == 0 ? "" : i % 3 == 1 ? "bracket" : "polite"));
    if (i % 4 == 3) {
      requests.back().sampling.temperature = 0.8F;
      requests.back().sampling.seed = 5;
    }
  }
  std::vector<Answer> solo;
  {
    EngineOptions o;
    o.prefix_cache = false;
    o.max_sequences = 1;
    EngineFixture e("tiny-hybrid", o);
    load(e, "bracket", "bracket");
    load(e, "polite", "polite");
    o.max_loras = 0;
    EngineFixture base("tiny-hybrid", o);
    for (const Request& r : requests) {
      solo.push_back(e.solo(r));
      if (r.adapter.empty()) {
        const Answer without = base.solo(r);
        EXPECT_EQ(without.tokens, solo.back().tokens);
      }
    }
    Request base_again = requests[1];
    base_again.adapter.clear();
    EXPECT_NE(e.solo(base_again).tokens, solo[1].tokens) << "the adapter changes nothing: the test would show nothing";
  }
  for (const char* speculate : {"none", "mtp", "ngram"}) {
    for (const int sequences : {3, 16}) {
      for (const int slots : {1, 2}) {
        EngineOptions o;
        o.speculate = speculate;
        o.draft_tokens = 3;
        o.max_sequences = sequences;
        o.max_batch_tokens = 100;
        o.max_loras = slots;  // 1: the adapters take turns
        EngineFixture e("tiny-hybrid", o);
        load(e, "bracket", "bracket");
        load(e, "polite", "polite");
        for (int round = 0; round < 2; ++round) {
          for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
          e.run();
        }
        for (std::size_t i = 0; i < e.answers.size(); ++i) {
          ASSERT_EQ(e.answers[i].tokens, solo[i % 16].tokens)
              << speculate << ", " << sequences << " sequences, " << slots << " slots, request " << i;
        }
        EXPECT_GT(e.answers[16].usage.cached_tokens, 0);
        const std::size_t drafted = e.core().metrics().adapter_drafts.size();  // adapters that had drafts
        if (std::string(speculate) == "none") {
          EXPECT_EQ(drafted, 0U);
        } else if (std::string(speculate) == "mtp") {
          EXPECT_EQ(drafted, 2U);
        }
        expect_nothing_held(e);
      }
    }
  }
}

// Case 47: what a name computed before it was loaded again is never found again, its snapshots neither.
TEST(Adapters, AReloadedNameNeverHitsTheOldOne) {
  EngineFixture e("tiny-hybrid", {});
  load(e, "a", "bracket");
  load(e, "b", "polite");
  const auto prompt = test_prompt(200, 9, 1000);
  const Answer base = e.solo(with_adapter(prompt, "")), a = e.solo(with_adapter(prompt, "a")), b = e.solo(with_adapter(prompt, "b"));
  for (const Answer* x : {&base, &a, &b}) EXPECT_EQ(x->usage.cached_tokens, 0);
  EXPECT_EQ(e.solo(with_adapter(prompt, "a")).usage.cached_tokens, 192);

  load(e, "a", "polite", true);
  const Answer reloaded = e.solo(with_adapter(prompt, "a"));
  EXPECT_EQ(reloaded.usage.cached_tokens, 0);
  EXPECT_EQ(reloaded.tokens, b.tokens);
  load(e, "a", "bracket", true);
  const Answer back = e.solo(with_adapter(prompt, "a"));
  EXPECT_EQ(back.usage.cached_tokens, 0);
  EXPECT_EQ(back.tokens, a.tokens);
  EXPECT_EQ(e.solo(with_adapter(prompt, "")).tokens, base.tokens);
}

// A hundred loads and unloads while requests run with the adapters: those that run go on with what they began with.
TEST(Adapters, LoadsAndUnloadsUnderLoadLeakNothing) {
  EngineOptions o;
  o.max_sequences = 4;
  o.max_loras = 2;
  EngineFixture e("tiny-hybrid", o);
  load(e, "bracket", "bracket");
  load(e, "polite", "polite");
  const auto prompt = test_prompt(20, 3, 1000);
  const Answer bracket = e.solo(with_adapter(prompt, "bracket", 4)), polite = e.solo(with_adapter(prompt, "polite", 4));
  ASSERT_NE(bracket.tokens, polite.tokens);
  e.answers.clear();
  std::vector<bool> is_bracket;
  for (int i = 0; i < 100; ++i) {
    const bool odd = i % 2 == 1;
    load(e, "x", odd ? "bracket" : "polite");
    is_bracket.push_back(odd);
    ASSERT_GE(e.submit(with_adapter(prompt, "x", 4)), 0) << e.error;
    ASSERT_TRUE(e.core().adapters().remove("x"));
    EXPECT_EQ(e.submit(with_adapter(prompt, "x")), -1);
    EXPECT_EQ(e.error, "there is no adapter 'x'");
    e.step();
  }
  e.run();
  ASSERT_EQ(e.answers.size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(e.answers[i].tokens, (is_bracket[i] ? bracket : polite).tokens) << i;
  EXPECT_EQ(e.core().adapters().names(), (std::vector<std::string>{"bracket", "polite"}));
  expect_nothing_held(e);
}

TEST(Adapters, RefusalsNameTheCause) {
  EngineOptions o;
  o.max_lora_rank = 2;
  EngineFixture e("tiny-hybrid", o);
  const auto low = e.core().load_adapter("a", kFolder / "bracket", false);
  ASSERT_FALSE(low);
  EXPECT_NE(low.error().message.find("rank"), std::string::npos) << low.error().message;
  const auto missing = e.core().load_adapter("a", kFolder / "nowhere", false);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("nowhere"), std::string::npos) << missing.error().message;
  EXPECT_EQ(e.submit(with_adapter({5, 6}, "a")), -1);

  o.max_lora_rank = 256;
  EngineFixture f("tiny-hybrid", o);
  load(f, "a", "bracket");
  const auto again = f.core().load_adapter("a", kFolder / "polite", false);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, "there is an adapter 'a' already");

  o.max_loras = 0;
  EngineFixture off("tiny-hybrid", o);
  EXPECT_FALSE(off.core().load_adapter("a", kFolder / "bracket", false));
}

TEST(AdapterSlots, KeepWhatIsUsedAndReplaceWhatIsUnusedLongest) {
  AdapterSlots slots(2);
  const int a = slots.acquire(1), b = slots.acquire(2);
  EXPECT_NE(a, b);
  EXPECT_EQ(slots.acquire(3), -1);
  EXPECT_FALSE(slots.fits(3));
  EXPECT_EQ(slots.acquire(1), a);
  slots.release(a);
  EXPECT_FALSE(slots.fits(3)) << "1 has another user";
  slots.release(b);
  EXPECT_EQ(slots.acquire(3), b);
  slots.release(b);
  slots.release(a);
  EXPECT_EQ(slots.acquire(2), a) << "1 was used before 3";
  bool pinned = false;
  EXPECT_EQ(slots.empty(2, pinned), -1);
  EXPECT_TRUE(pinned);
  EXPECT_EQ(slots.empty(3, pinned), b);
  EXPECT_FALSE(pinned);
  EXPECT_EQ(slots.acquire(4), b);
  EXPECT_EQ(slots.pinned(), 2);
}

// The scheduler: while an older request waits for a slot, base requests pass it, requests with adapters do not.
TEST(Adapters, NoneIsOvertakenForEver) {
  EngineOptions o;
  o.max_loras = 1;
  o.max_sequences = 8;
  EngineFixture e("tiny-hybrid", o);
  load(e, "bracket", "bracket");
  load(e, "polite", "polite");
  const auto prompt = test_prompt(10, 4, 1000);
  const auto first = static_cast<std::size_t>(e.submit(with_adapter(prompt, "bracket", 8)));
  e.step();
  const auto waits = static_cast<std::size_t>(e.submit(with_adapter(prompt, "polite", 2)));
  const auto base = static_cast<std::size_t>(e.submit(with_adapter(prompt, "", 2)));
  const auto late = static_cast<std::size_t>(e.submit(with_adapter(prompt, "bracket", 2)));
  while (e.answers[first].finish == FinishReason::kNone) ASSERT_TRUE(e.step());
  EXPECT_NE(e.answers[base].finish, FinishReason::kNone);
  EXPECT_EQ(e.answers[waits].finish, FinishReason::kNone);
  EXPECT_EQ(e.answers[late].finish, FinishReason::kNone);
  while (e.answers[waits].finish == FinishReason::kNone) ASSERT_TRUE(e.step());
  EXPECT_EQ(e.answers[late].tokens.size(), 0U);
  e.run();
  EXPECT_EQ(e.answers[late].tokens.size(), 2U);
}

}  // namespace
}  // namespace strata
