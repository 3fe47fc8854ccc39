// Padding, recorded steps and drawing together change nothing: the engine on a device-like backend against
// the plain one.
#include <gtest/gtest.h>

#include "runtime/device_like_ops.h"
#include "runtime/engine_fixture.h"
#include "runtime/padding.h"

namespace strata {
namespace {

TEST(Padding, ShapesAreFewAndHoldTheirSequences) {
  EXPECT_EQ(padded_count(8), 8);
  EXPECT_EQ(padded_count(9), 10);
  EXPECT_EQ(padded_count(17), 20);
  EXPECT_EQ(padded_count(1025), 1280);
  for (int run = 1; run <= kTapeRows; ++run) {
    for (int sequences = 1; sequences <= 70; ++sequences) {
      for (const int rows : {sequences, sequences + run - 1, sequences * run}) {
        const BatchShape shape{.rows = rows,
                               .sequences = sequences,
                               .logit_rows = rows,
                               .saves = 3,
                               .longest_run = run,
                               .longest_context = 300};
        const BatchShape to = padded_shape(shape);
        EXPECT_EQ(padded_shape(to), to);
        const int more = to.sequences - sequences, more_rows = to.rows - rows;
        EXPECT_TRUE(more_rows >= more && more_rows <= more * to.longest_run)
            << rows << " rows of " << sequences;
        EXPECT_LE(to.rows, rows * 2 + 2);
      }
    }
  }
  const BatchShape decode = padded_shape(
      {.rows = 33, .sequences = 33, .logit_rows = 33, .saves = 33, .longest_run = 1, .longest_context = 65});
  EXPECT_EQ(decode, (BatchShape{.rows = 40,
                                .sequences = 40,
                                .logit_rows = 40,
                                .saves = 40,
                                .longest_run = 1,
                                .longest_context = 256}));
}

TEST(Padding, FillsABatch) {
  BatchBuilder b;
  const std::vector<int> tokens = {5, 6, 7}, pages = {3};
  b.add({.tokens = tokens, .start = 2, .pages = pages, .state_in = 4});
  b.save(2, 4);
  b.want_logits(2);
  b.pad({.rows = 8, .sequences = 3, .logit_rows = 2, .saves = 2, .longest_run = 4, .longest_context = 256});
  const Batch batch = b.batch();
  const auto at = [](const Tensor& t, int i) { return t.data<int>()[i]; };
  EXPECT_EQ(batch.shape.rows, 8);
  EXPECT_EQ(at(batch.first, 1), 3);
  EXPECT_EQ(at(batch.first, 2), 5);
  EXPECT_EQ(at(batch.first, 3), 8);
  for (int row = 3; row < 8; ++row) EXPECT_EQ(at(batch.kv_slots, row), -1);
  EXPECT_EQ(at(batch.sequence, 4), 1);
  EXPECT_EQ(at(batch.state_in, 2), -1);
  EXPECT_EQ(at(batch.saves, 2), 8);
  EXPECT_EQ(at(batch.saves, 3), -1);
  EXPECT_EQ(at(batch.logit_rows, 1), 0);
  EXPECT_EQ(batch.page_table.shape(), (Shape{3, 4}));
  EXPECT_EQ(at(batch.page_table, 0), 3);
  EXPECT_DEATH(b.pad({.rows = 4, .sequences = 3}), "padded to 4 of 3");
}

// A row whose draw is turned by everything a request may ask for.
Request busy(int seed) {
  Request r;
  r.prompt = test_prompt(20 + 13 * seed, seed);
  r.max_tokens = 24;
  r.sampling = {.temperature = 0.9F,
                .top_k = seed % 3 == 0 ? 20 : 0,
                .top_p = 0.95F,
                .min_p = 0.01F,
                .repetition_penalty = 1.1F,
                .presence_penalty = 0.3F,
                .frequency_penalty = 0.2F,
                .logit_bias = {{7, 3.0F}, {9, -2.0F}},
                .seed = 100 + seed,
                .min_tokens = 10};
  r.logprobs = 3;
  if (seed % 2 == 0) r.prompt_logprobs = 1;
  return r;
}

struct Played {
  std::vector<Answer> answers;
  StepCounters counters;
  int recordings = 0;
};

Played play(const TestModel& model, const std::string& speculate) {
  EngineOptions o;
  o.max_sequences = 5;
  o.max_batch_tokens = 100;
  o.speculate = speculate;
  o.draft_tokens = speculate == "none" ? 0 : 3;
  EngineFixture e(model, o);
  for (int i = 0; i < 9; ++i) {
    EXPECT_GE(e.submit(busy(i)), 0);
    EXPECT_GE(e.submit(greedy(test_prompt(40 + i, 50 + i / 3), 30)), 0);
  }
  e.run();
  Played out{.answers = e.answers, .counters = {}, .recordings = e.core().runner().recordings()};
  if (StepDevice* device = e.core().runner().device()) out.counters = device->counters();
  return out;
}

class DeviceLike : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(DeviceLike, GivesTheSameTokens) {
  const auto& [name, speculate] = GetParam();
  const Played plain = play(test_model(name), speculate);
  const Played device =
      play(load_test_model(name, std::make_shared<DeviceLikeOps>(CpuOptions{.threads = 2})), speculate);
  ASSERT_EQ(plain.answers.size(), device.answers.size());
  for (std::size_t i = 0; i < plain.answers.size(); ++i) {
    const Answer &a = plain.answers[i], &b = device.answers[i];
    EXPECT_EQ(a.tokens, b.tokens) << "request " << i;
    EXPECT_EQ(a.finish, b.finish);
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    for (std::size_t t = 0; t < a.logprobs.size(); ++t) {
      EXPECT_EQ(a.logprobs[t].logprob, b.logprobs[t].logprob);
      EXPECT_EQ(a.logprobs[t].top, b.logprobs[t].top);
    }
    ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size());
    for (std::size_t t = 0; t < a.prompt_logprobs.size(); ++t)
      EXPECT_EQ(a.prompt_logprobs[t].logprob, b.prompt_logprobs[t].logprob);
  }
  EXPECT_GT(device.counters.replays, device.counters.recordings);
  EXPECT_LE(device.recordings, Runner::kMostRecordings);
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceLike,
                         testing::Values(std::pair{"qwen3_next", "none"}, std::pair{"qwen3_next", "mtp"},
                                         std::pair{"qwen3_5_moe", "ngram"}, std::pair{"nemotron_h", "ngram"},
                                         std::pair{"gpt_oss", "none"}, std::pair{"qwen4_exp", "none"}),
                         [](const auto& test) { return test.param.first + "_" + test.param.second; });

}  // namespace
}  // namespace strata
