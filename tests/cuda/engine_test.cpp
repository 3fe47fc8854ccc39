// The whole engine on the GPU: golden models through the runner, drafts, the prefix cache, preemption,
// aborts, steady steps.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "cuda/parity.h"
#include "ops/cuda/make_cuda_ops.h"
#include "runtime/engine_fixture.h"

namespace strata::testing {
namespace {

class EngineOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  }
  static TestModel on_gpu(const std::string& name, DType activation = DType::kF32) {
    return load_test_model(name, make_cuda_ops({.activation = activation}));
  }
  static EngineOptions options(const TestModel& model) {
    EngineOptions o;
    o.kv_dtype = model.ops->activation();
    return o;
  }
};

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(STRATA_SOURCE_DIR) / "tests/golden")) {
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Request scored(int tokens, int seed) {
  Request r = greedy(test_prompt(tokens, seed), 8);
  r.prompt_logprobs = 0;
  r.logprobs = 2;
  return r;
}

// Differences of the prompt's log probabilities, ascending.
std::vector<double> differences(const Answer& a, const Answer& b) {
  EXPECT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size());
  EXPECT_FALSE(a.prompt_logprobs.empty()) << a.error;
  std::vector<double> out;
  for (std::size_t i = 0; i < std::min(a.prompt_logprobs.size(), b.prompt_logprobs.size()); ++i) {
    out.push_back(std::abs(static_cast<double>(a.prompt_logprobs[i].logprob) - b.prompt_logprobs[i].logprob));
  }
  std::sort(out.begin(), out.end());
  if (out.empty()) out.push_back(INFINITY);
  return out;
}

// The CPU's engine agrees with the recorded outputs (tests/model); the GPU's must with the CPU's.
TEST_F(EngineOnGpu, ScoresEveryGoldenModelAsTheCpuDoes) {
  for (const std::string& name : golden_names()) {
    EngineFixture cpu(name, {});
    const Answer want = cpu.solo(scored(150, 3));
    for (const DType activation : {DType::kF32, DType::kBF16}) {
      const TestModel model = on_gpu(name, activation);
      EngineFixture gpu(model, options(model));
      const Answer got = gpu.solo(scored(150, 3));
      const auto off = differences(want, got);
      const double median = off[off.size() / 2];
      std::printf("  %-20s %s log probabilities off by: median %.1e, largest %.1e\n", name.c_str(),
                  std::string(strata::name(activation)).c_str(), median, off.back());
      if (activation == DType::kF32) {
        EXPECT_LT(off.back(), 2e-3) << name;
      } else {
        EXPECT_LT(median, 7e-2) << name;
      }
    }
  }
}

TEST_F(EngineOnGpu, ChunksAndCompanyStayWithinTheTolerance) {
  for (const char* name : {"qwen3_next", "qwen3_5_moe", "nemotron_h", "gemma3"}) {
    for (const DType activation : {DType::kF32, DType::kBF16}) {
      const TestModel model = on_gpu(name, activation);
      EngineFixture whole(model, options(model));
      const Answer want = whole.solo(scored(200, 5));
      for (const int chunk : {1, 17, 63, 64, 65, 100}) {
        EngineOptions o = options(model);
        o.max_batch_tokens = chunk;
        o.max_sequences = std::min(chunk, 4);
        EngineFixture e(model, o);
        e.submit(scored(200, 5));
        for (int i = 0; i < 3; ++i) e.submit(greedy(test_prompt(30 + 40 * i, i), 20));
        e.run();
        const auto off = differences(want, e.answers[0]);
        EXPECT_LT(off[off.size() / 2], activation == DType::kF32 ? 1e-4 : 5e-2)
            << name << " in chunks of " << chunk;
        if (activation == DType::kF32) {
          EXPECT_LT(off.back(), 2e-3) << name << " in chunks of " << chunk;
        }
      }
    }
  }
}

TEST_F(EngineOnGpu, WarmRepeatsColdBitForBit) {
  for (const char* name : {"qwen3_next", "tiny-hybrid", "nemotron_h"}) {
    const TestModel model = on_gpu(name, DType::kBF16);
    EngineOptions o = options(model);
    o.max_batch_tokens = 128;
    EngineFixture e(model, o);
    Request r = greedy(test_prompt(300, 9), 12);
    r.logprobs = 5;
    r.sampling.ignore_eos = true;
    const Answer cold = e.solo(r), warm = e.solo(r);
    EXPECT_EQ(cold.usage.cached_tokens, 0);
    EXPECT_EQ(warm.usage.cached_tokens, 256) << name;
    EXPECT_EQ(warm, cold);
    ASSERT_EQ(warm.logprobs.size(), cold.logprobs.size());
    for (std::size_t i = 0; i < cold.logprobs.size(); ++i) {
      EXPECT_EQ(warm.logprobs[i].logprob, cold.logprobs[i].logprob) << name << ", token " << i;
      EXPECT_EQ(warm.logprobs[i].top, cold.logprobs[i].top);
    }
  }
}

TEST_F(EngineOnGpu, DraftsChangeNoToken) {
  const TestModel model = on_gpu("tiny-hybrid");
  std::vector<Answer> want;
  for (const char* speculate : {"none", "mtp", "ngram"}) {
    for (const bool lazy : {true, false}) {
      EngineOptions o = options(model);
      o.speculate = speculate;
      o.draft_tokens = o.speculate == "none" ? 0 : 4;
      o.lazy_slots = lazy;
      o.max_sequences = 6;
      EngineFixture e(model, o);
      for (int i = 0; i < 12; ++i) {
        Request r = greedy(test_prompt(20 + 17 * i, i % 5), 60);
        r.sampling.ignore_eos = true;
        if (i % 3 == 2)
          r.sampling = {
              .temperature = 0.8F, .top_p = 0.9F, .frequency_penalty = 0.5F, .seed = 7, .ignore_eos = true};
        e.submit(std::move(r));
      }
      e.run();
      if (want.empty()) want = e.answers;
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(e.answers[i].tokens, want[i].tokens) << speculate << ", request " << i;
      if (o.speculate != "none") {
        EXPECT_GT(e.core().metrics().accepted, 0U) << speculate;
      }
    }
  }
}

// A copy of the head in fewer bits costs few drafts; f32 activations have no such copy.
TEST_F(EngineOnGpu, ACoarserHeadDraftsNearlyAsWell) {
  const auto accepted = [](const LoadOptions& load) {
    TestModel model = on_gpu("tiny-hybrid", DType::kBF16);
    Checkpoint checkpoint = Checkpoint::open(std::filesystem::path(STRATA_SOURCE_DIR) / "models/tiny-hybrid");
    model.model = std::make_shared<const Model>(load_model(checkpoint, *model.ops, load));
    EXPECT_EQ(model.model->mtp->head->weight().dtype, load.draft_head.value_or(DType::kBF16));
    EXPECT_EQ(model.model->head->weight().dtype, DType::kBF16);
    EngineOptions o = options(model);
    o.speculate = "mtp";
    o.draft_tokens = 3;
    EngineFixture e(model, o);
    for (int i = 0; i < 12; ++i) {
      Request r = greedy(test_prompt(20 + 17 * i, i % 5), 80);
      r.sampling.ignore_eos = true;
      e.submit(std::move(r));
    }
    e.run();
    for (const Answer& a : e.answers) EXPECT_EQ(a.tokens.size(), 80U);
    const EngineMetrics& m = e.core().metrics();
    return static_cast<double>(m.accepted) / static_cast<double>(m.drafted);
  };
  const double same = accepted({});
  for (const DType type : {DType::kF8E4M3, DType::kQ4_0, DType::kMXFP4}) {
    const double copy = accepted({.draft_head = type});
    std::printf("  %s: %.3f of the drafts accepted, %.3f with the head itself\n",
                std::string(strata::name(type)).c_str(), copy, same);
    EXPECT_GT(copy, same - 0.08) << strata::name(type);
  }
  const TestModel wide = on_gpu("tiny-hybrid");
  Checkpoint checkpoint = Checkpoint::open(std::filesystem::path(STRATA_SOURCE_DIR) / "models/tiny-hybrid");
  EXPECT_THROW(load_model(checkpoint, *wide.ops, {.draft_head = DType::kF8E4M3}), Error);
}

TEST_F(EngineOnGpu, PreemptionLosesNoToken) {
  const TestModel model = on_gpu("qwen3_next");
  EngineOptions o = options(model);
  std::vector<Answer> want;
  for (const int pages : {0, 12}) {
    o.kv_pages = pages;
    o.speculate = "mtp";
    o.draft_tokens = 2;
    EngineFixture e(model, o);
    for (int i = 0; i < 6; ++i) {
      Request r = greedy(test_prompt(100, i), 120);
      r.sampling.ignore_eos = true;
      e.submit(std::move(r));
    }
    e.run();
    if (pages == 0) want = e.answers;
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(e.answers[i].tokens, want[i].tokens) << "request " << i;
    if (pages > 0) {
      EXPECT_GT(e.core().metrics().preemptions, 0U);
    }
  }
}

TEST_F(EngineOnGpu, PrefixCacheSurvivesARestart) {
  const TestModel model = on_gpu("qwen3_next");
  const auto file = std::filesystem::temp_directory_path() / "strata-gpu-cache";
  EngineOptions o = options(model);
  o.cache_file = file;
  const Request r = greedy(test_prompt(300, 8), 20);
  Answer first;
  {
    EngineFixture e(model, o);
    first = e.solo(r);
    e.core().save_cache();
  }
  EngineFixture e(model, o);
  e.core().restore_cache();
  const Answer again = e.solo(r);
  EXPECT_EQ(again, first);
  EXPECT_GE(again.usage.cached_tokens, 256);
  std::filesystem::remove(file);
}

TEST_F(EngineOnGpu, SteadyStepsReplayAndNeitherAllocateNorWait) {
  const TestModel model = on_gpu("tiny-hybrid", DType::kBF16);
  EngineOptions o = options(model);
  o.max_sequences = 8;
  EngineFixture e(model, o);
  for (int i = 0; i < 6; ++i) {
    Request r = greedy(test_prompt(66, i), 100);
    r.sampling.ignore_eos = true;
    r.sampling.temperature = static_cast<float>(i % 2);
    e.submit(std::move(r));
  }
  for (int i = 0; i < 12; ++i) e.step();
  const StepCounters before = e.core().runner().device()->counters();
  constexpr int kSteps = 40;  // up to the next page boundary, where a step saves more states
  for (int i = 0; i < kSteps; ++i) e.step();
  const StepCounters after = e.core().runner().device()->counters();
  EXPECT_EQ(after.replays - before.replays, static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(after.uploads - before.uploads, static_cast<std::uint64_t>(kSteps));
  EXPECT_LE(after.waits - before.waits, static_cast<std::uint64_t>(kSteps));  // for the tokens
  EXPECT_EQ(after.recordings, before.recordings);
  EXPECT_EQ(after.allocations, before.allocations);
}

// One wait for all drafts, one for what the model says of them.
TEST_F(EngineOnGpu, SteadyDraftStepsWaitTwice) {
  const TestModel model = on_gpu("tiny-hybrid", DType::kBF16);
  for (const int drafts : {3, 5}) {
    EngineOptions o = options(model);
    o.max_sequences = 8;
    o.speculate = "mtp";
    o.draft_tokens = drafts;
    EngineFixture e(model, o);
    for (int i = 0; i < 6; ++i) {
      Request r = greedy(test_prompt(66, i), 600);
      r.sampling.ignore_eos = true;
      e.submit(std::move(r));
    }
    for (int i = 0; i < 12; ++i) e.step();
    const StepCounters before = e.core().runner().device()->counters();
    constexpr std::uint64_t kSteps = 40;
    for (std::uint64_t i = 0; i < kSteps; ++i) e.step();
    const StepCounters after = e.core().runner().device()->counters();
    EXPECT_EQ(after.uploads - before.uploads, kSteps * static_cast<std::uint64_t>(drafts + 1));
    EXPECT_LE(after.waits - before.waits, 2 * kSteps);
    EXPECT_EQ(after.allocations, before.allocations);
  }
}

// A request that waits keeps the others' steps from being begun ahead; their shapes are the same.
TEST_F(EngineOnGpu, StepsBegunAheadRepeatOthersBitForBit) {
  for (const char* name : {"tiny-hybrid", "gpt_oss"}) {
    const TestModel model = on_gpu(name, DType::kBF16);
    std::vector<Answer> want;
    for (const bool ahead : {false, true}) {
      EngineOptions o = options(model);
      o.max_sequences = 6;
      EngineFixture e(model, o);
      for (int i = 0; i < (ahead ? 6 : 7); ++i) {
        Request r = greedy(test_prompt(66, i), 140);
        r.sampling = {.temperature = static_cast<float>(i % 3), .top_p = 0.9F, .seed = 9, .ignore_eos = true};
        r.logprobs = 3;
        e.submit(std::move(r));
      }
      const auto uploads = [&] { return e.core().runner().device()->counters().uploads; };
      const std::uint64_t before = uploads();
      for (int i = 0; i < 20; ++i) e.step();
      EXPECT_EQ(uploads() - before, ahead ? 21U : 20U);
      e.run();
      if (!ahead) want = e.answers;
      for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(e.answers[i].tokens, want[i].tokens) << name << ", request " << i;
        ASSERT_EQ(e.answers[i].logprobs.size(), want[i].logprobs.size());
        for (std::size_t t = 0; t < want[i].logprobs.size(); ++t) {
          EXPECT_EQ(e.answers[i].logprobs[t].logprob, want[i].logprobs[t].logprob) << name << ", token " << t;
          EXPECT_EQ(e.answers[i].logprobs[t].top, want[i].logprobs[t].top);
        }
      }
    }
  }
}

// Device time is what events on the stream saw: more than nothing, and nothing while the host sleeps between
// steps.
TEST_F(EngineOnGpu, TheClockCountsWorkAndNoIdling) {
  const TestModel model = on_gpu("tiny-hybrid", DType::kBF16);
  EngineOptions o = options(model);
  o.speculate = "mtp";
  o.draft_tokens = 3;
  EngineFixture e(model, o);
  Request r = greedy(test_prompt(66, 1), 100);
  r.sampling.ignore_eos = true;
  e.submit(std::move(r));
  for (int i = 0; i < 3; ++i) e.step();
  const auto busy = [&] {
    const auto seconds = e.core().metrics().device_seconds;
    return std::pair(seconds.at("forward"), seconds.at("draft"));
  };
  const auto before = busy();
  const auto start = Clock::now();
  constexpr int kSteps = 10;
  constexpr auto kSleep = std::chrono::milliseconds(20);
  for (int i = 0; i < kSteps; ++i) {
    std::this_thread::sleep_for(kSleep);
    ASSERT_TRUE(e.step());
  }
  const double awake = std::chrono::duration<double>(Clock::now() - start - kSteps * kSleep).count();
  const auto after = busy();
  EXPECT_GT(after.first, before.first);
  EXPECT_GT(after.second, before.second);
  EXPECT_LT(after.first + after.second - before.first - before.second, awake + 0.01);
}

TEST_F(EngineOnGpu, AThousandRequestsWithAbortsGiveAllBack) {
  const TestModel model = on_gpu("qwen3_next", DType::kBF16);
  EngineOptions o = options(model);
  o.speculate = "mtp";
  o.max_sequences = 64;
  EngineFixture e(model, o);
  std::uint32_t random = 1;
  const auto next = [&](std::uint32_t n) {
    return static_cast<int>((random = random * 1664525U + 1013904223U) >> 8) % static_cast<int>(n);
  };
  for (int i = 0; i < 1000; ++i) {
    Request r = greedy(test_prompt(1 + next(150), next(20)), 1 + next(30));
    r.sampling.temperature = static_cast<float>(next(2));
    ASSERT_GE(e.submit(std::move(r)), 0);
    if (next(2) == 0) e.step();
    if (next(3) == 0) e.core().abort(static_cast<RequestId>(next(static_cast<std::uint32_t>(i + 1))));
  }
  e.run();
  int aborted = 0;
  for (const Answer& a : e.answers) {
    EXPECT_NE(a.finish, FinishReason::kNone);
    EXPECT_NE(a.finish, FinishReason::kError) << a.error;
    aborted += a.finish == FinishReason::kAborted ? 1 : 0;
  }
  EXPECT_GT(aborted, 20);
  const EngineMetrics& m = e.core().metrics();
  EXPECT_EQ(m.pages_used, 0);
  EXPECT_EQ(m.slots_used, 0);
  EXPECT_EQ(m.running + m.waiting, 0);
}

// In a process of its own: the context is lost.
TEST_F(EngineOnGpu, ADeviceErrorEndsServing) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const TestModel model = on_gpu("qwen3_next");
        Engine engine(model.model, model.ops, model.info, options(model));
        const bool healthy_before = engine.healthy();
        auto* nowhere = reinterpret_cast<void*>(std::uintptr_t{64});
        model.ops->add(Tensor(nowhere, DType::kF32, {1, 8}, Device::kCuda),
                       Tensor(nowhere, DType::kF32, {1, 8}, Device::kCuda), 1);
        std::string error;
        std::atomic<bool> over = false;
        engine.submit(greedy(test_prompt(20, 1), 5), [&](Event&& event) {
          error = event.error;
          over = event.finish != FinishReason::kNone;
        });
        while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::fprintf(stderr, "heard: %s\n", error.c_str());
        const bool refused = !engine.submit(greedy(test_prompt(20, 1), 5), [](Event&&) {});
        std::_Exit(healthy_before && !engine.healthy() && refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "heard: CUDA");
}

}  // namespace
}  // namespace strata::testing
