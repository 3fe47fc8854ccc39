// Whole-engine tests: the same request gives the same tokens whatever happens around it, and nothing leaks.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/engine_fixture.h"

namespace strata {
namespace {

class SameTokens : public testing::TestWithParam<std::string> {};

// {cache} x {speculation} x {mixed batch} x {chunked}: sixteen equal outputs, each prompt sent cold and then warm.
TEST_P(SameTokens, SixteenWays) {
  const std::string model = GetParam();
  std::vector<Request> requests;
  const auto shared = test_prompt(130, 1);
  constexpr int kRequests = std::max(2, 6 / STRATA_EACH);
  for (int i = 0; i < kRequests; ++i) {
    auto prompt = shared;
    const auto own = test_prompt(i * 37 + 1, 100 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(greedy(prompt, 24));
    requests.back().sampling.ignore_eos = true;
    if (i % 2 == 1) {  // seeded sampling must not depend on anything either
      requests.back().sampling.temperature = 0.9F;
      requests.back().sampling.seed = 77 + static_cast<std::uint64_t>(i);
      requests.back().sampling.presence_penalty = 0.5F;
    }
  }
  std::vector<Answer> expected;
  for (const bool cache : {false, true}) {
    for (const char* speculate : {"none", "mtp", "ngram", "draft"}) {
      for (const bool mixed : {false, true}) {
        for (const int chunk : {512, 17}) {
          for (const bool lazy : {true, false}) {
            if (!lazy && (std::string(speculate) == "none" || !mixed)) continue;
            EngineOptions o;
            o.prefix_cache = cache;
            o.speculate = speculate;
            o.draft_model = test_model(model == "tiny-hybrid" ? model : "qwen3_5").model;
            o.draft_tokens = 3;
            o.max_batch_tokens = chunk;
            o.max_sequences = mixed ? kRequests : 1;
            o.lazy_slots = lazy;
            EngineFixture e(model, o);
            int widest = 0, running = 0;  // rows of a step, sequences at once: the options took effect
            std::uint64_t rows = 0;
            for (int round = 0; round < 2; ++round) {
              for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
              while (e.step()) {
                const EngineMetrics& m = e.core().metrics();
                widest = std::max(widest, static_cast<int>(m.computed_tokens - rows));
                running = std::max(running, m.running);
                rows = m.computed_tokens;
              }
            }
            EXPECT_LE(widest, chunk);
            EXPECT_GT(widest, chunk == 17 ? 15 : 100);
            EXPECT_EQ(running > 1, mixed);
            if (std::string(speculate) != "ngram") {  // which drafts when a text repeats itself
              EXPECT_EQ(e.core().metrics().drafted > 0, std::string(speculate) != "none");
            }
            if (expected.empty()) expected.assign(e.answers.begin(), e.answers.begin() + kRequests);
            for (std::size_t i = 0; i < e.answers.size(); ++i) {
              ASSERT_EQ(e.answers[i].tokens, expected[i % kRequests].tokens)
                  << model << " cache " << cache << " speculate " << speculate << " mixed " << mixed << " chunk " << chunk << " lazy "
                  << lazy << " request " << i;
            }
            if (cache) {
              EXPECT_GE(e.answers.back().usage.cached_tokens, 128);
            } else {
              EXPECT_EQ(e.answers.back().usage.cached_tokens, 0);
            }
            EXPECT_EQ(e.core().metrics().pages_used, 0);
            EXPECT_EQ(e.core().metrics().slots_used, 0);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hybrids, SameTokens, testing::Values("tiny-hybrid", "qwen3_next", "qwen3_5_moe"),
                         [](const auto& model) { return model.param == "tiny-hybrid" ? std::string("tiny_hybrid") : model.param; });

TEST(Engine, PreemptionLosesNothingAndRepeatsNothing) {
  EngineOptions o;
  o.max_sequences = 8;
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(greedy(test_prompt(60 + 20 * i, i), 150));
  for (Request& r : requests) r.sampling.ignore_eos = true;
  EngineFixture roomy("qwen3_next", o);
  for (const Request& r : requests) roomy.submit(r);
  roomy.run();
  for (const char* speculate : {"none", "mtp"}) {
    o.kv_pages = 12;  // about three of the eight fit to their end
    o.speculate = speculate;
    o.draft_tokens = 2;
    EngineFixture tight("qwen3_next", o);
    for (const Request& r : requests) ASSERT_GE(tight.submit(r), 0) << tight.error;
    tight.run();
    EXPECT_GT(tight.core().metrics().preemptions, 0U);
    EXPECT_EQ(tight.answers, roomy.answers) << speculate;
    EXPECT_EQ(tight.core().metrics().pages_used, 0);
  }
}

TEST(Engine, PromptsNearThePoolsSizeFinishOrAreRefused) {
  EngineOptions o;
  o.kv_pages = 10;
  EngineFixture e("qwen3", o);
  const int pool = 10 * kPageTokens;
  for (const int percent : {95, 99, 100, 101}) {
    const int id = e.submit(greedy(test_prompt(pool * percent / 100, percent), 50));
    if (percent >= 100) {
      EXPECT_EQ(id, -1);
      EXPECT_NE(e.error.find("holds 639"), std::string::npos) << e.error;
      continue;
    }
    ASSERT_GE(id, 0);
    e.run();
    const Answer& a = e.answers.back();
    EXPECT_EQ(a.finish, FinishReason::kLength);
    EXPECT_EQ(a.usage.prompt_tokens + a.usage.output_tokens, std::min(pool, a.usage.prompt_tokens + 50));
  }
}

TEST(Engine, AbortInMidPrefillThenTheSamePromptEqualsCold) {  // case 3
  EngineOptions o;
  o.max_batch_tokens = 50;
  EngineFixture cold("qwen3_5_moe", o);
  const Request request = greedy(test_prompt(333, 5), 12);
  const Answer expected = cold.solo(request);
  EngineFixture e("qwen3_5_moe", o);
  for (int i = 0; i < 50; ++i) {
    const int id = e.submit(request);
    for (int step = 0; step <= i % 7; ++step) e.step();
    e.core().abort(static_cast<RequestId>(id));
    EXPECT_EQ(e.answers.back().finish, FinishReason::kAborted);
    EXPECT_EQ(e.core().metrics().pages_used, 0);
    ASSERT_EQ(e.solo(request), expected) << i;
  }
  EXPECT_EQ(e.core().metrics().slots_used, 0);
}

TEST(Engine, PromptLengthsAroundPageBoundariesWarmEqualsCold) {  // case 6
  EngineOptions cold_options;
  cold_options.prefix_cache = false;
  EngineFixture cold("qwen3_next", cold_options), warm("qwen3_next", {});
  for (int k = 1; k <= 8; ++k) {
    for (int n = 64 * k - 1; n <= 64 * k + 1; ++n) {
      Request r = greedy(test_prompt(n, 3), 3);
      r.logprobs = 0;
      const Answer a = cold.solo(r);
      for (int round = 0; round < 2; ++round) {
        const Answer b = warm.solo(r);
        ASSERT_EQ(a.tokens, b.tokens) << n;
        ASSERT_EQ(a.logprobs[0].logprob, b.logprobs[0].logprob) << n;
      }
    }
  }
}

TEST(Engine, AppendOnlyChatComputesOnlyWhatIsNew) {  // 200 turns of a growing conversation
  constexpr int kSaid = 11, kAnswered = 9;
  EngineOptions on, off;
  on.max_context = off.max_context = 4096;
  EngineFixture e("qwen3_5_moe", on);
  off.prefix_cache = false;
  EngineFixture cold("qwen3_5_moe", off);
  std::vector<int> history = test_prompt(70, 9);
  for (int turn = 0; turn < 200; ++turn) {
    Request r = greedy(history, kAnswered);
    r.sampling.ignore_eos = true;
    const Answer a = e.solo(r);
    if (turn % 50 == 49) {
      ASSERT_EQ(a, cold.solo(r));
    }
    const int replayed = a.usage.prompt_tokens - a.usage.cached_tokens;
    const int fresh = turn == 0 ? a.usage.prompt_tokens : kSaid + kAnswered;
    EXPECT_LE(replayed, fresh + kPageTokens) << turn;
    history.insert(history.end(), a.tokens.begin(), a.tokens.end());
    const auto next = test_prompt(kSaid, 1000 + turn);
    history.insert(history.end(), next.begin(), next.end());
  }
}

TEST(Engine, ASavedCacheIsRestoredAndADamagedOneIgnored) {  // case 11
  const auto file = std::filesystem::temp_directory_path() / fmt::format("strata-cache-{}", getpid());
  EngineOptions o;
  o.cache_file = file;
  o.speculate = "mtp";
  o.draft_tokens = 2;
  Request r = greedy(test_prompt(300, 8), 20);
  r.sampling.ignore_eos = true;
  Answer first;
  Request longer;
  {
    EngineFixture e("qwen3_next", o);
    first = e.solo(r);
    e.core().save_cache();
    longer = r;
    longer.prompt.insert(longer.prompt.end(), first.tokens.begin(), first.tokens.end());
    longer.prompt.resize(longer.prompt.size() + 10, 5);
  }
  EngineFixture cold("qwen3_next", {}), warm("qwen3_next", o);
  warm.core().restore_cache();
  const Answer a = warm.solo(longer);
  EXPECT_GE(a.usage.cached_tokens, 319 - kPageTokens);
  EXPECT_EQ(a, cold.solo(longer));
  EXPECT_EQ(warm.solo(r), first);

  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto cached_after = [&](const std::string& content, const EngineOptions& options) {
    std::ofstream(file, std::ios::binary) << content;
    EngineFixture e("qwen3_next", options);
    e.core().restore_cache();
    const int cached = e.solo(longer).usage.cached_tokens;
    EXPECT_EQ(e.answers.back(), a);
    return cached;
  };
  EXPECT_GT(cached_after(bytes, o), 0);
  std::string flipped = bytes;
  flipped[bytes.size() / 2] = static_cast<char>(flipped[bytes.size() / 2] ^ 1);
  EXPECT_EQ(cached_after(flipped, o), 0);
  EXPECT_EQ(cached_after(bytes.substr(0, bytes.size() / 2), o), 0);
  EXPECT_EQ(cached_after("", o), 0);
  EXPECT_EQ(cached_after(bytes + "x", o), 0);
  EngineOptions other = o;
  other.kv_dtype = DType::kBF16;  // the same bytes mean something else
  std::ofstream(file, std::ios::binary) << bytes;
  EngineFixture e("qwen3_next", other);
  e.core().restore_cache();
  EXPECT_EQ(e.core().residency().cache().pages(), 0);
  std::filesystem::remove(file);
}

TEST(Engine, WrapRoundOfPagesAndSlotsChangesNothing) {  // case 4
  for (const DType kv : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    EngineOptions o;
    o.kv_pages = 12;
    o.state_slots = 6;
    o.max_sequences = 2;
    o.kv_dtype = kv;
    EngineFixture e("qwen3_next", o);
    const Request first = greedy(test_prompt(200, 1), 10);
    const Answer a = e.solo(first);
    for (int i = 0; i < 12; ++i) e.solo(greedy(test_prompt(150 + 30 * i, 50 + i), 10));
    EXPECT_EQ(e.solo(first), a) << name(kv);
  }
}

TEST(Engine, ImpossibleRequestsAreRefusedWithTheField) {  // case 40
  EngineFixture e("qwen3", {});
  const auto refused = [&](auto&& change) {
    Request r = greedy(test_prompt(5, 1), 4);
    change(r);
    e.error.clear();
    EXPECT_EQ(e.submit(r), -1);
    return e.error;
  };
  EXPECT_NE(refused([](Request& r) { r.prompt.clear(); }).find("empty"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.prompt[0] = 320; }).find("token 320"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.prompt = test_prompt(5000, 1); }).find("context holds"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.sampling.temperature = -1; }).find("temperature"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.sampling.temperature = NAN; }).find("temperature"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.sampling.top_p = 1.5F; }).find("top_p"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.sampling.logit_bias = {{9999, 1.0F}}; }).find("logit_bias"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.max_tokens = 0; }).find("max_tokens"), std::string::npos);
  EXPECT_EQ(e.solo(greedy(test_prompt(5, 1), 4)).tokens.size(), 4U);  // and the engine goes on
}

TEST(Engine, PromptLogprobsAreThoseOfTheForwardPassHoweverChunked) {
  EngineOptions whole, chunked;
  chunked.max_batch_tokens = 7;
  EngineFixture a("qwen3_5_moe", whole), b("qwen3_5_moe", chunked);
  Request r = greedy(test_prompt(50, 4), 2);
  r.prompt_logprobs = 2;
  const Answer x = a.solo(r), y = b.solo(r);
  ASSERT_EQ(x.prompt_logprobs.size(), 49U);
  for (std::size_t i = 0; i < 49; ++i) {
    EXPECT_EQ(x.prompt_logprobs[i].token, r.prompt[i + 1]);
    EXPECT_EQ(x.prompt_logprobs[i].logprob, y.prompt_logprobs[i].logprob);
    EXPECT_LE(x.prompt_logprobs[i].logprob, x.prompt_logprobs[i].top[0].second);
  }
}

}  // namespace
}  // namespace strata
