// Steps begun ahead of the tokens of the one before: the same answers and the same accounts as without,
// whatever ends in between.
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "runtime/device_like_ops.h"
#include "runtime/engine_fixture.h"
#include "tensor/out_of_memory.h"

namespace strata {
namespace {

// Fails when told to, once.
class FaultyDevice final : public HostStepDevice {
 public:
  Batch upload(const Batch& host, std::span<const TokenSource> drawn) override {
    if (!drawn.empty() && full_in > 0 && --full_in == 0)
      throw OutOfMemory("planted: {} rows", host.shape.rows);
    return HostStepDevice::upload(host, drawn);
  }
  std::span<const Drawn> finish_draw(std::uint64_t first) override {
    if (unfinished() > 1 && fails_in > 0 && --fails_in == 0) throw Error("planted failure");
    return HostStepDevice::finish_draw(first);
  }
  int fails_in = 0;  // draws finished with a step begun ahead
  int full_in = 0;   // steps begun ahead
};

class FaultyOps final : public CpuOps {
 public:
  using CpuOps::CpuOps;
  std::unique_ptr<StepDevice> make_step_device(const StepLimits&) override {
    return std::make_unique<FaultyDevice>();
  }
};

// Loaded once a process.
const TestModel& device_model(const std::string& name) {
  static std::map<std::string, TestModel> models;
  TestModel& m = models[name];
  if (!m.model) m = load_test_model(name, std::make_shared<FaultyOps>(CpuOptions{.threads = 2}));
  return m;
}

FaultyDevice& device_of(EngineFixture& e) { return dynamic_cast<FaultyDevice&>(*e.core().runner().device()); }

Request plain(int tokens, int seed, int most) {
  Request r = greedy(test_prompt(tokens, seed), most);
  r.sampling.temperature = 1;
  r.sampling.seed = 40 + seed;
  r.sampling.ignore_eos = true;
  r.logprobs = 1;
  return r;
}

EngineOptions options() {
  EngineOptions o;
  o.max_sequences = 5;
  o.max_batch_tokens = 512;  // all prompts at once: how many rows go beside decodes is a matter of time
  return o;
}

void expect_same(const Answer& got, const Answer& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.finish, want.finish) << got.error;
  EXPECT_EQ(got.usage.cached_tokens, want.usage.cached_tokens);
  EXPECT_EQ(got.usage.output_tokens, want.usage.output_tokens);
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (std::size_t i = 0; i < want.logprobs.size(); ++i)
    EXPECT_EQ(got.logprobs[i].logprob, want.logprobs[i].logprob) << "token " << i;
}

void expect_nothing_held(EngineFixture& e) {
  EXPECT_EQ(e.core().metrics().pages_used, 0);
  EXPECT_EQ(e.core().metrics().slots_used, 0);
  e.core().residency().cache().clear();
  EXPECT_EQ(e.core().residency().pages().held(), 0);
  EXPECT_EQ(e.core().residency().slots().held(), 1);  // the dummy
}

// The answer of `r` up to the first time that token `n` of it comes.
Request stopping(Request r, const Answer& whole, std::size_t n) {
  r.stop_tokens = {whole.tokens[n]};
  r.sampling.ignore_eos = true;
  return r;
}

class StepsAhead : public testing::TestWithParam<const char*> {};

TEST_P(StepsAhead, GiveTheSameAnswersAndAccounts) {
  EngineFixture cpu(test_model(GetParam()), options()), device(device_model(GetParam()), options());
  for (EngineFixture* e : {&cpu, &device}) {
    for (int i = 0; i < 5; ++i) {
      Request r = plain(20 + 17 * i, i, 90 + 9 * i);
      r.sampling.top_p = i % 2 == 0 ? 1.0F : 0.9F;
      r.sampling.min_tokens = 10;
      r.sampling.logit_bias = {{7, 1.0F}};
      if (i == 3) r.stop_tokens = test_prompt(12, 3);  // ends somewhere
      ASSERT_GE(e->submit(std::move(r)), 0) << e->error;
    }
    e->run();
  }
  EXPECT_GT(device_of(device).uploads_while_drawing, 100);
  for (std::size_t i = 0; i < cpu.answers.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(device.answers[i], cpu.answers[i]);
  }
  const EngineMetrics &a = device.core().metrics(), &b = cpu.core().metrics();
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.computed_tokens, b.computed_tokens);
  EXPECT_EQ(a.output_tokens, b.output_tokens);
  EXPECT_EQ(a.state_reads, b.state_reads);
  EXPECT_EQ(a.state_writes, b.state_writes);
  EXPECT_EQ(a.requests, b.requests);
  EXPECT_EQ(a.pages_cached, b.pages_cached);
  EXPECT_EQ(a.slots_cached, b.slots_cached);
  EXPECT_EQ(a.step.count(), b.step.count());
  EXPECT_EQ(a.inter_token.count(), b.inter_token.count());
  expect_nothing_held(device);
}

INSTANTIATE_TEST_SUITE_P(Models, StepsAhead,
                         testing::Values("qwen3_next", "gpt_oss", "nemotron_h", "qwen4_exp"));

// Answers that end at a stop token around page boundaries, others running on: the row too many crosses the
// boundary, and what is kept of the answer must not be what that row left.
TEST(StepAhead, ARowTooManyLeavesNothingInTheCache) {
  EngineFixture cpu("qwen3_next", options()), device(device_model("qwen3_next"), options());
  Request longest = plain(40, 1, 120);
  longest.cache_salt = "alone";
  const Answer whole = cpu.solo(longest);
  int across = 0;  // ends whose row too many crossed a boundary
  for (std::size_t n = 18; n < 94; ++n) {
    if (n == 30) n = 80;  // tokens 62 to 69 and 124 to 133 of the sequence are the place
    if (std::find(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(n),
                  whole.tokens[n]) != whole.tokens.begin() + static_cast<std::ptrdiff_t>(n)) {
      continue;
    }
    across += (40 + n + 1) % kPageTokens == 0 ? 1 : 0;
    SCOPED_TRACE(n);
    std::vector<Answer> again;
    for (EngineFixture* e : {&cpu, &device}) {
      Request r = stopping(longest, whole, n);
      r.sampling.ignore_eos = false;
      r.cache_salt = std::to_string(n);
      Request beside = plain(30, 7, 150);
      beside.cache_salt = r.cache_salt;
      const int id = e->submit(r);
      e->submit(beside);
      e->run();
      EXPECT_EQ(e->answers[static_cast<std::size_t>(id)].tokens.size(), n + 1);
      r.prompt.insert(r.prompt.end(), whole.tokens.begin(),
                      whole.tokens.begin() + static_cast<std::ptrdiff_t>(n) + 1);
      const auto more = test_prompt(9, 5);
      r.prompt.insert(r.prompt.end(), more.begin(), more.end());
      r.stop_tokens = {};
      r.max_tokens = 4;
      again.push_back(e->solo(r));
    }
    expect_same(again[1], again[0]);
  }
  EXPECT_GT(across, 0);
  EXPECT_GT(device_of(device).uploads_while_drawing, 100);
  expect_nothing_held(device);
}

TEST(StepAhead, AbortsAndDeadlinesInTheStepUnderWayGiveAllBackAtOnce) {
  EngineOptions o = options();
  o.kv_pages = 12;  // what the aborted ones held is needed by the next
  EngineFixture alone("qwen3_next", options()), e(device_model("qwen3_next"), o);
  std::vector<Answer> want;
  for (int i = 0; i < 5; ++i) want.push_back(alone.solo(plain(60, i, 60)));
  for (int round = 0; round < 12; ++round) {
    const auto first = e.answers.size();
    for (int i = 0; i < 5; ++i) {
      Request r = plain(60, i, 60);
      if (i == 1) r.deadline = Clock::now() + std::chrono::milliseconds(5);
      e.submit(std::move(r));
    }
    for (int step = 0; step < 6 + round; ++step) e.step();
    EXPECT_GT(device_of(e).unfinished(), 0U);
    std::this_thread::sleep_for(std::chrono::milliseconds(6));
    e.core().abort(first + static_cast<std::size_t>(round) % 5);
    e.core().abort(first + static_cast<std::size_t>(round + 2) % 5);
    if (round % 4 == 3) {
      e.core().abort_all("");
    } else {
      e.run();
    }
    for (std::size_t i = 0; i < 5; ++i) {
      const Answer& got = e.answers[first + i];
      SCOPED_TRACE(fmt::format("round {}, request {}", round, i));
      EXPECT_NE(got.finish, FinishReason::kNone);
      ASSERT_LE(got.tokens.size(), want[i].tokens.size());
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want[i].tokens.begin()));
      EXPECT_TRUE(got.finish != FinishReason::kLength || got.tokens == want[i].tokens);
    }
    EXPECT_EQ(e.core().metrics().pages_used, 0);
    EXPECT_EQ(e.core().metrics().slots_used, 0);
  }
  expect_nothing_held(e);
}

// At every step of the work in turn, boundaries among them.
TEST(StepAhead, AFailureOfTheStepUnderWayEndsAllAndHoldsNothing) {
  for (int fails_in = 1; fails_in < 90; fails_in += fails_in < 50 ? 7 : 1) {
    EngineFixture e(device_model("qwen3_next"), options());
    for (int i = 0; i < 3; ++i) e.submit(plain(40, i, 120));
    device_of(e).fails_in = fails_in;
    std::string heard;
    try {
      e.run();
    } catch (const Error& error) {
      heard = error.what();
      e.core().abort_all(heard);
    }
    EXPECT_EQ(heard, "planted failure");
    for (const Answer& a : e.answers) EXPECT_EQ(a.error, heard);
    EXPECT_FALSE(e.step());
    expect_nothing_held(e);
  }
}

TEST(StepAhead, AStepThatFindsNoMemoryIsDoneAgain) {
  EngineFixture alone("qwen3_next", options());
  for (int full_in = 1; full_in < 90; full_in += full_in < 20 ? 7 : 1) {
    EngineFixture e(device_model("qwen3_next"), options());
    for (int i = 0; i < 3; ++i) e.submit(plain(40, i, 60 + i));
    device_of(e).full_in = full_in;
    e.run();
    EXPECT_EQ(e.core().metrics().requests.at("length"), 3U);
    if (full_in == 1) {
      for (int i = 0; i < 3; ++i) alone.solo(plain(40, i, 60 + i));
    }
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(e.answers[i].tokens, alone.answers[i].tokens) << "request " << i;
    expect_nothing_held(e);
    if (device_of(e).full_in > 0) break;  // no such step any more
  }
}

// A length that is known ends an answer without a row too many.
TEST(StepAhead, LengthsAreForeseen) {
  EngineFixture e(device_model("qwen3_next"), options());
  const auto before = device_of(e).counters().uploads;
  for (const int most : {1, 7, 30}) e.submit(plain(40, most, most));
  e.run();
  EXPECT_EQ(device_of(e).unfinished(), 0U);
  EXPECT_EQ(device_of(e).counters().uploads - before, 30U);
  EXPECT_EQ(e.core().metrics().steps, 30U);
}

// What needs the token on the host waits for it.
TEST(StepAhead, PenaltiesManyLogprobsAndWaitingRequestsAreServedOneStepAtATime) {
  for (const int what : {0, 1, 2, 3, 4}) {
    EngineFixture e(device_model("qwen3_next"), options());
    Request r = plain(40, 1, 20);
    if (what == 1) r.sampling.repetition_penalty = 1.1F;
    if (what == 2) r.sampling.presence_penalty = 0.1F;
    if (what == 3) r.sampling.frequency_penalty = 0.1F;
    if (what == 4) r.logprobs = kMostTopLogprobs + 1;
    e.solo(r);
    EXPECT_EQ(device_of(e).uploads_while_drawing > 0, what == 0);
  }
}

// A drafter's passes: each takes the tokens of those before it, as the model's does, and the host waits once
// for all, once for the model.
TEST(StepAhead, DraftsWaitOnce) {
  for (const char* speculate : {"mtp", "draft"}) {
    EngineOptions o = options();
    o.speculate = speculate;
    o.draft_model = test_model("qwen3_5").model;
    o.draft_tokens = 5;
    o.max_context = 512;
    EngineFixture e(device_model("qwen3_next"), o);
    for (int i = 0; i < 3; ++i) e.submit(plain(40, i, 60));
    for (int i = 0; i < 4; ++i) e.step();
    const std::uint64_t before = device_of(e).counters().waits;
    const int uploads = device_of(e).uploads_while_drawing;
    e.step();
    EXPECT_EQ(device_of(e).counters().waits - before, 2U) << speculate;
    EXPECT_EQ(device_of(e).uploads_while_drawing - uploads, 5) << speculate;
  }
}

}  // namespace
}  // namespace strata
