// Faults that users of other engines reported, as whole-engine tests; the numbers are those of the project's
// list of cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "runtime/engine_fixture.h"
#include "tensor/out_of_memory.h"

namespace strata {
namespace {

// Runs to the last token of `max_tokens` whatever the model says.
Request exactly(std::vector<int> prompt, int max_tokens) {
  Request r = greedy(std::move(prompt), max_tokens);
  r.sampling.ignore_eos = true;
  return r;
}

std::vector<int> joined(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Answer> alone(const std::string& model, const std::vector<Request>& requests) {
  EngineOptions o;
  o.prefix_cache = false;
  o.max_sequences = 1;
  EngineFixture e(model, o);
  for (const Request& r : requests) EXPECT_GE(e.submit(r), 0) << e.error;
  e.run();
  return e.answers;
}

void expect_idle(EngineFixture& e) {
  EXPECT_EQ(e.core().metrics().pages_used, 0);
  EXPECT_EQ(e.core().metrics().slots_used, 0);
}

TEST(EngineCases, ABurstOfMixedStepsColdAndWarm) {  // case 5
  std::vector<Request> requests;
  for (int i = 0; i < 64; ++i)
    requests.push_back(exactly(test_prompt(3 + i * 53 % 200, i % 48), 2 + i * 7 % 30));
  const auto expected = alone("qwen3_next", requests);
  EngineOptions o;
  o.max_batch_tokens = 96;
  EngineFixture e("qwen3_next", o);
  for (int pass = 0; pass < 2; ++pass) {
    e.answers.clear();
    for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
    e.run();
    EXPECT_EQ(e.answers, expected) << "pass " << pass;
  }
  EXPECT_GT(e.core().metrics().cached_tokens, 0U);
  expect_idle(e);
}

TEST(EngineCases, EvictionUnderDrafts) {  // case 7
  std::vector<Request> requests;
  for (int i = 0; i < 26; ++i) requests.push_back(exactly(test_prompt(20 + i, 7 * i, 1200), 220));
  EngineOptions o;
  o.speculate = "mtp";
  o.draft_tokens = 3;
  o.max_sequences = 26;
  o.memory_bytes = std::size_t{512} << 20;
  const auto acceptance = [](const EngineFixture& e) {
    double accepted = 0, drafted = 0;
    for (const Answer& a : e.answers) accepted += a.usage.accepted_tokens, drafted += a.usage.drafted_tokens;
    return accepted / drafted;
  };
  EngineFixture roomy("tiny-hybrid", o);
  for (const Request& r : requests) ASSERT_GE(roomy.submit(r), 0) << roomy.error;
  roomy.run();
  o.kv_pages = 30;  // six of them to their end
  EngineFixture tight("tiny-hybrid", o);
  for (const Request& r : requests) ASSERT_GE(tight.submit(r), 0) << tight.error;
  int fullest = 0;
  while (tight.step()) fullest = std::max(fullest, tight.core().metrics().pages_used);
  EXPECT_GE(fullest, 30 * 95 / 100);
  EXPECT_GT(tight.core().metrics().preemptions, 0U);
  EXPECT_EQ(tight.answers, roomy.answers);
  EXPECT_NEAR(acceptance(tight), acceptance(roomy), 0.05);
  o.speculate = "none";
  o.kv_pages = 0;
  EngineFixture plain("tiny-hybrid", o);
  for (const Request& r : requests) ASSERT_GE(plain.submit(r), 0) << plain.error;
  plain.run();
  EXPECT_EQ(tight.answers, plain.answers);  // so no more repetition than without drafts and eviction
  expect_idle(tight);
}

TEST(EngineCases, ManyPromptsThatShareTheirBeginning) {  // case 8
  EngineOptions o;
  o.max_context = 4096;
  EngineFixture e("qwen3_5", o);
  const auto shared = test_prompt(1500, 1);
  for (int i = 0; i < 64; ++i) {
    const Answer a = e.solo(exactly(joined(shared, test_prompt(700, 100 + i)), 2));
    if (i >= 2) {
      EXPECT_GE(a.usage.cached_tokens, 1400) << i;
    }
    if (i == 0) {
      EXPECT_EQ(e.core().metrics().cache_misses.at("unknown"), 1U);
    }
    if (i == 1) {  // pages to 1,472, a snapshot at 1,024; the one at 1,472 is taken now
      EXPECT_EQ(e.core().metrics().cache_misses.at("partial_snapshot"), 1U);
    }
  }
  EXPECT_EQ(e.core().metrics().cache_misses.size(), 2U);
}

TEST(EngineCases, AContextBelowTheSnapshotInterval) {  // case 9
  EngineOptions o;
  o.max_context = 512;
  for (const int interval : {0, 16, 1000}) {
    o.snapshot_interval_pages = interval;
    EngineFixture e("qwen3_next", o);
    const Request r = exactly(test_prompt(400, 2), 5);
    const Answer cold = e.solo(r), warm = e.solo(r);
    EXPECT_EQ(warm.usage.cached_tokens, 384) << interval;
    EXPECT_EQ(warm, cold);
  }
}

TEST(EngineCases, ChatsOfShortAndOfLongTurns) {  // case 10
  const TestModel model = load_test_model("qwen3_next", cpu_ops(), [](Model& m) { m.max_context = 40000; });
  for (const int size : {12, 12000}) {
    EngineOptions o;
    o.max_context = 40000;
    EngineFixture e(model, o);
    const Answer first = e.solo(exactly(test_prompt(size, 1), 20));
    const auto own = test_prompt(size, 2);
    const Request second = exactly(joined(joined(test_prompt(size, 1), first.tokens), own), 20);
    const Answer a = e.solo(second), again = e.solo(second);
    EXPECT_LE(a.usage.prompt_tokens - a.usage.cached_tokens, size + kPageTokens);
    EXPECT_LE(again.usage.prompt_tokens - again.usage.cached_tokens,
              kPageTokens);  // the last answer regenerated
    EXPECT_EQ(again, a);
  }
}

TEST(EngineCases, ChunksOfAnySizeGiveTheSameLogits) {  // case 13
  std::vector<Request> requests;
  for (const int n : {1300, 270, 41}) {
    requests.push_back(exactly(test_prompt(n, n), 2));
    requests.back().logprobs = 5;
  }
  const auto expected = alone("qwen3_5_moe", requests);
  for (const int chunk : {1, 17, 100, 257, 1000}) {
    for (const bool together : {false, true}) {
      EngineOptions o;
      o.max_batch_tokens = chunk;
      o.max_sequences = std::min(chunk, 3);
      o.prefix_cache = false;
      EngineFixture e("qwen3_5_moe", o);
      for (const Request& r : requests) {
        ASSERT_GE(e.submit(r), 0) << e.error;
        if (!together) e.run();
      }
      e.run();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        ASSERT_EQ(e.answers[i].tokens, expected[i].tokens) << chunk;
        for (std::size_t t = 0; t < 2; ++t)
          EXPECT_EQ(e.answers[i].logprobs[t].top, expected[i].logprobs[t].top) << chunk;
      }
    }
  }
}

// Proposes what follows in the right text, with every third draft wrong; remembers the steps it saw.
class HalfRight final : public Drafter {
 public:
  struct Step {
    int last_chunks_of_one = 0, verifying = 0;
  };
  HalfRight(const std::vector<Answer>& texts, std::vector<Step>& steps) : texts_(texts), steps_(steps) {}
  void propose(std::span<const DraftWish> wishes) override {
    for (const DraftWish& w : wishes) {
      const auto& text = texts_.at(w.sequence->id).tokens;
      for (int i = 0; i < w.drafts; ++i) {
        const auto at = static_cast<std::size_t>(w.sequence->output_tokens() + i);
        if (at >= text.size()) break;
        w.sequence->drafts.push_back(at % 3 == 2 ? (text[at] + 1) % 320 : text[at]);
      }
    }
  }
  void observe(const FinishedStep& step) override {
    steps_.emplace_back();
    for (const StepRun& r : step.runs) {
      steps_.back().last_chunks_of_one += r.rows == 1 && r.start + 1 == r.sequence->prompt_tokens ? 1 : 0;
      steps_.back().verifying += r.rows > 1 && r.start >= r.sequence->prompt_tokens - 1 ? 1 : 0;
    }
  }

 private:
  const std::vector<Answer>& texts_;
  std::vector<Step>& steps_;
};

TEST(EngineCases, ALastChunkOfOneTokenBesideVerifyingSequences) {  // case 14
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(exactly(test_prompt(10 + i, i), 200));
  for (int n = 60; n < 76; ++n)
    requests.push_back(exactly(test_prompt(n, n), 3));  // some of them end in a chunk of one
  const auto expected = alone("qwen3_next", requests);
  std::vector<HalfRight::Step> steps;
  EngineOptions o;
  o.speculate = "ngram";
  o.draft_tokens = 3;
  o.max_sequences = 4;
  o.max_batch_tokens = 16;
  o.prefix_cache = false;
  EngineFixture e("qwen3_next", o, [&](Runner&) { return std::make_unique<HalfRight>(expected, steps); });
  for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
  e.run();
  EXPECT_EQ(e.answers, expected);
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(),
                          [](const auto& s) { return s.last_chunks_of_one > 0 && s.verifying == 3; }));
  expect_idle(e);
}

// A layer that does nothing but run out of memory: on steps of more than `rows` rows, and on the calls
// counted down in `calls`.
struct Shortage {
  int rows = std::numeric_limits<int>::max(), calls = -1, hits = 0;
};
class ShortOfMemory final : public TransformerLayer {
 public:
  explicit ShortOfMemory(std::shared_ptr<Shortage> shortage) : shortage_(std::move(shortage)) {}
  void forward(Residual&, const Batch& batch, const Memory&, Ops&) const override {
    if (batch.shape.rows <= shortage_->rows && shortage_->calls-- != 0) return;
    ++shortage_->hits;
    throw OutOfMemory("planted: {} rows", batch.shape.rows);
  }

 private:
  std::shared_ptr<Shortage> shortage_;
};

TEST(EngineCases, StepsThatFindNoMemoryAreDoneAgainInSmallerOnes) {  // case 15
  const auto shortage = std::make_shared<Shortage>();
  const TestModel model = load_test_model(
      "qwen3_next", cpu_ops(), [&](Model& m) {  // in the middle: layers before it have written their state
        m.layers.insert(m.layers.begin() + static_cast<std::ptrdiff_t>(m.layers.size()) / 2,
                        NamedLayer{"planted", std::make_unique<ShortOfMemory>(shortage)});
      });
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(exactly(test_prompt(120 + 64 * i, i), 40));
  const auto expected = alone("qwen3_next", requests);
  for (const bool speculate : {false, true}) {
    EngineOptions o;
    o.speculate = speculate ? "ngram" : "none";
    o.draft_tokens = speculate ? 3 : 0;
    EngineFixture e(model, o);
    *shortage = {.rows = 40};  // the prompts are 3 to 9 times as long
    for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
    e.run();
    EXPECT_EQ(e.answers, expected);
    EXPECT_GT(shortage->hits, 0);
    *shortage = {};
    e.answers.clear();
    for (const Request& r : requests) e.submit(r);
    for (int step = 0; step < 400; ++step) {  // now and then, in prefills and in decodes, warm
      shortage->calls = step % 9 == 5 ? 0 : -1;
      e.step();
    }
    *shortage = {};
    e.run();
    EXPECT_EQ(e.answers, expected);
    *shortage = {.rows = 0};  // nothing fits: the request fails, the engine does not
    const Answer failed = e.solo(requests[0]);
    EXPECT_EQ(failed.finish, FinishReason::kError);
    EXPECT_NE(failed.error.find("planted"), std::string::npos);
    *shortage = {};
    EXPECT_EQ(e.solo(requests[0]), expected[0]);
    expect_idle(e);
  }
}

// A drafter's own passes find no memory: drafts are lost, and nothing else.
TEST(EngineCases, ADrafterThatFindsNoMemoryCostsDraftsOnly) {
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(exactly(test_prompt(120 + 64 * i, i), 40));
  const auto expected = alone("qwen3_next", requests);
  const auto shortage = std::make_shared<Shortage>();
  const auto plant = [&](Model& m) {
    m.layers.insert(m.layers.begin() + static_cast<std::ptrdiff_t>(m.layers.size()) / 2,
                    NamedLayer{"planted", std::make_unique<ShortOfMemory>(shortage)});
  };
  const TestModel model =
      load_test_model("qwen3_next", cpu_ops(), [&](Model& m) { plant(const_cast<Model&>(*m.mtp)); });
  const TestModel small = load_test_model("qwen3_5", cpu_ops(), plant);
  for (const char* speculate : {"mtp", "draft"}) {
    EngineOptions o;
    o.speculate = speculate;
    o.draft_model = small.model;
    o.draft_tokens = 3;
    o.prefix_cache = false;
    EngineFixture e(model, o);
    const auto drafted = [&](const Shortage& planted) {  // for the requests, which answer as ever
      *shortage = planted;
      const auto before = e.core().metrics().drafted;
      e.answers.clear();
      for (const Request& r : requests) EXPECT_GE(e.submit(r), 0) << e.error;
      for (int step = 0; e.step(); ++step) {
        if (step % 9 == 5 && planted.calls == 0)
          shortage->calls = step / 9 % 4;  // in each of a step's passes
      }
      EXPECT_EQ(e.answers, expected) << speculate;
      EXPECT_EQ(shortage->hits > 0, planted.rows < 1000 || planted.calls == 0) << speculate;
      return e.core().metrics().drafted - before;
    };
    const auto all = drafted({});
    EXPECT_GT(all, 100U);
    EXPECT_GT(drafted({.rows = 40}), 0U) << speculate;  // the prompts are 3 to 9 times as long
    EXPECT_GT(drafted({.calls = 0}), 0U) << speculate;  // now and then
    EXPECT_EQ(drafted({.rows = 0}), 0U) << speculate;   // always
    EXPECT_GT(drafted({}), all / 4) << speculate;       // memory is back
    expect_idle(e);
  }
}

TEST(EngineCases, SixteenThousandTokensStayFinite) {  // case 16
  const TestModel model = load_test_model("qwen3_next", cpu_ops(1), [](Model& m) { m.max_context = 17000; });
  EngineOptions o;
  o.max_context = 17000;
  o.prefix_cache = false;
  EngineFixture e(model, o);
  const Answer a =
      e.solo(exactly(test_prompt(10, 1), 16000));  // logits that are not finite would end it with an error
  EXPECT_EQ(a.finish, FinishReason::kLength) << a.error;
  EXPECT_EQ(a.tokens.size(), 16000U);
}

TEST(EngineCases, UnsupportedTypesAreRefusedAtTheStart) {  // case 16
  EngineOptions o;
  for (const DType dtype : {DType::kI32, DType::kQ8_0}) {
    o.kv_dtype = dtype;
    try {
      EngineFixture e("qwen3_next", o);
      ADD_FAILURE() << name(dtype);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(name(dtype)), std::string::npos) << e.what();
    }
  }
  class HalfState final : public TransformerLayer {
   public:
    StateSpec state() const override {
      return Recurrent{.tensors = {Shape{4}}, .tape = {}, .dtype = DType::kF16};
    }
    void forward(Residual&, const Batch&, const Memory&, Ops&) const override {}
  };
  const TestModel model = load_test_model("qwen3_next", cpu_ops(), [](Model& m) {
    m.layers.push_back({"planted", std::make_unique<HalfState>()});
  });
  try {
    EngineFixture e(model, {});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("f16"), std::string::npos) << e.what();
  }
}

// Fills memory that lies in slots or pages chosen by `which` with NaN or another value.
void scribble(EngineFixture& e, float value, bool states, bool pages, const std::function<bool(int)>& which) {
  const auto fill = [&](const Tensor& all) {
    if (all.empty()) return;
    for (int i = 0; i < static_cast<int>(all.rows()); ++i) {
      if (!which(i)) continue;
      const Tensor one = all.rows_from(i, 1);
      std::fill_n(one.data<float>(), one.elements(), value);
    }
  };
  for (const Memory& m : e.core().memory()) {
    if (const auto* s = std::get_if<StateView>(&m); s != nullptr && states) {
      for (const Tensor& t : s->tensors) fill(t);
      for (const Tensor& t : s->tapes) fill(t);
    }
    if (const auto* kv = std::get_if<KvView>(&m); kv != nullptr && pages) {
      for (const Tensor& t : {kv->k, kv->v, kv->index}) fill(t);
    }
  }
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(EngineCases, WhatLiesInFreeSlotsAndPagesIsNeverRead) {  // case 16
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(exactly(test_prompt(50 + 60 * i, i), 30));
  const auto expected = alone("qwen3_next", requests);
  EngineOptions o;
  o.speculate = "ngram";
  o.draft_tokens = 2;
  EngineFixture e("qwen3_next", o);
  scribble(e, kNan, true, true, [](int) { return true; });
  for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
  e.run();
  EXPECT_EQ(e.answers, expected);
}

TEST(EngineCases, ASlotThatHeldNanIsCleanWhenReused) {  // case 16
  EngineOptions o;
  o.state_slots = 3;
  o.max_sequences = 1;
  EngineFixture e("qwen3_next", o);
  const Request r = exactly(test_prompt(30, 1), 12);
  const Answer expected = e.solo(r);
  const int id = e.submit(r);
  e.step();
  scribble(e, kNan, true, false, [](int) { return true; });  // its own slot as well
  e.run();
  EXPECT_EQ(e.answers[static_cast<std::size_t>(id)].finish, FinishReason::kError);
  EXPECT_NE(e.answers[static_cast<std::size_t>(id)].error.find("not finite"), std::string::npos);
  EXPECT_EQ(e.solo(r), expected);
  expect_idle(e);
}

// The planted faults of "warm equals cold": a snapshot, or a cached page, that holds something else changes
// the answer.
TEST(EngineCases, AWrongSnapshotOrPageWouldBeCaught) {
  Request r = exactly(test_prompt(200, 3), 8);
  r.logprobs = 0;
  for (const bool states : {true, false}) {
    EngineFixture e("qwen3_next", {});
    const Answer cold = e.solo(r), warm = e.solo(r);
    ASSERT_EQ(warm.usage.cached_tokens, 192);
    ASSERT_EQ(warm.logprobs[0].logprob, cold.logprobs[0].logprob);
    std::set<int> cached;
    for (const auto& entry : e.core().residency().cache().entries())
      cached.insert(states ? entry.slot : entry.page);
    scribble(e, 0.5F, states, !states, [&](int i) { return cached.contains(i); });
    EXPECT_NE(e.solo(r).logprobs[0].logprob, cold.logprobs[0].logprob) << states;
  }
}

TEST(EngineCases, ThirtyRequestsUnderOneSystemPrompt) {  // case 18
  std::vector<Request> requests;
  const auto system = test_prompt(800, 1);
  for (int i = 0; i < 30; ++i)
    requests.push_back(exactly(joined(system, test_prompt(5 + 11 * i % 70, 50 + i)), 12));
  const auto expected = alone("qwen3_5_moe", requests);
  EngineFixture e("qwen3_5_moe", {});
  for (int round = 0; round < 2; ++round) {
    e.answers.clear();
    for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
    e.run();
    EXPECT_EQ(e.answers, expected);
    for (const Answer& a : e.answers) EXPECT_EQ(a.tokens.size(), 12U);
  }
  expect_idle(e);
}

}  // namespace
}  // namespace strata
