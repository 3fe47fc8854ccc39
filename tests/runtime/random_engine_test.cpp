// Engines under random work: arrivals, aborts, chunk sizes, drafters, prefix hits and preemption as they
// come, on the host and on a device. Every answer equals the one its request gets alone, and nothing is held
// at the end.
// --gtest_random_seed=N chooses the work.
#include <gtest/gtest.h>

#include <random>

#include "runtime/device_like_ops.h"
#include "runtime/scripted_drafter.h"

namespace strata {
namespace {

const TestModel& device_model(const std::string& name) {  // loaded once per process
  static std::map<std::string, TestModel> models;
  TestModel& m = models[name];
  if (!m.model) m = load_test_model(name, std::make_shared<DeviceLikeOps>(CpuOptions{.threads = 2}));
  return m;
}

class RandomWork {
 public:
  // `tight`: the pages are just enough for the longest request, and several run at once. On a device most
  // work has no drafts and no penalties, so that steps are begun ahead.
  RandomWork(unsigned seed, bool tight, bool on_device = false)
      : rng_(seed), tight_(tight), on_device_(on_device) {}

  void run() {
    const std::string model = pick<std::string>({"qwen3_next", "qwen3_5_moe", "qwen3_5", "qwen3"});
    EngineOptions options = choose_options(model);
    std::vector<Request> requests;
    for (int i = 0; i < 14; ++i) requests.push_back(choose_request());
    if (tight_) {
      std::size_t longest = 0;
      for (const Request& r : requests)
        longest = std::max(longest, r.prompt.size() + static_cast<std::size_t>(r.max_tokens));
      options.kv_pages = static_cast<int>(longest) / kPageTokens + 1;
    }
    EngineOptions alone;
    alone.prefix_cache = false;
    EngineFixture solo(model, alone);
    std::vector<Answer> expected;
    for (const Request& r : requests) expected.push_back(solo.solo(r));
    std::vector<std::vector<int>> texts;
    for (const Answer& a : expected) texts.push_back(a.tokens);

    // Some drafts are right and some wrong, as a hash of the place says.
    const auto wrong = [salt = rng_()](const Sequence& s) {
      return static_cast<int>((s.id * 2654435761U + static_cast<unsigned>(s.known()) * 40503U + salt) >> 7) %
             6;
    };
    const bool script = options.speculate == "ngram" && one_in(2);
    std::vector<std::size_t> request_of;  // of the answer
    const auto text = [&](const Sequence& s) -> const std::vector<int>& { return texts[request_of[s.id]]; };
    EngineFixture e(on_device_ ? device_model(model) : test_model(model), options,
                    script ? scripted(text, wrong) : DrafterFactory{});
    std::vector<bool> aborted;
    std::size_t next = 0;
    const std::size_t all = 2 * requests.size();  // each comes twice, so that the second finds a prefix
    for (int step = 0; next < all || e.core().metrics().running + e.core().metrics().waiting > 0; ++step) {
      ASSERT_LT(step, 20000) << "the work does not end";
      while (next < all && one_in(3)) {
        const std::size_t which = next < requests.size() ? next : at_most(requests.size() - 1);
        request_of.push_back(which);
        if (e.submit(requests[which]) < 0)
          request_of.pop_back();  // longer than the pool
        else
          aborted.push_back(false);
        ++next;
      }
      if (one_in(40) && !aborted.empty()) {
        const std::size_t victim = at_most(aborted.size() - 1);
        if (e.answers[victim].finish == FinishReason::kNone) {
          e.core().abort(victim);
          aborted[victim] = true;
        }
      }
      e.step();
    }
    for (std::size_t i = 0; i < aborted.size(); ++i) {
      const Answer &got = e.answers[i], &want = expected[request_of[i]];
      if (aborted[i]) {
        ASSERT_LE(got.tokens.size(), want.tokens.size());
        EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin()))
            << "aborted answer " << i;
      } else {
        EXPECT_EQ(got, want) << "answer " << i;
      }
    }
    const EngineMetrics& m = e.core().metrics();
    EXPECT_EQ(m.pages_used, 0);
    EXPECT_EQ(m.slots_used, 0);
    e.core().residency().cache().clear();
    EXPECT_EQ(e.core().residency().pages().held(), 0);
    EXPECT_EQ(e.core().residency().slots().held(), 1);  // the dummy
    if (on_device_) ahead += dynamic_cast<HostStepDevice&>(*e.core().runner().device()).uploads_while_drawing;
    preemptions += m.preemptions;
    accepted += m.accepted;
    hits += m.cache_hit_tokens;
  }

  std::uint64_t preemptions = 0, accepted = 0, hits = 0;
  int ahead = 0;

 private:
  std::size_t at_most(std::size_t n) { return rng_() % (n + 1); }
  int between(int low, int high) {
    return low + static_cast<int>(at_most(static_cast<std::size_t>(high - low)));
  }
  bool one_in(std::size_t n) { return rng_() % n == 0; }
  template <typename T>
  T pick(const std::vector<T>& from) {
    return from[at_most(from.size() - 1)];
  }

  EngineOptions choose_options(const std::string& model) {
    EngineOptions o;
    o.prefix_cache = !one_in(4);
    o.speculate = pick<std::string>({"none", "ngram", "ngram", "draft", "mtp"});
    if (o.speculate == "mtp" && !test_model(model).model->mtp) o.speculate = "ngram";
    if (on_device_ && !one_in(3)) o.speculate = "none";
    o.draft_model = test_model("qwen3_5").model;
    o.draft_tokens = pick<int>({0, 1, 2, 3, 5, 15});
    o.lazy_slots = !one_in(3);
    o.max_batch_tokens = pick<int>({9, 17, 40, 64, 65, 512});
    o.max_sequences = between(tight_ ? 5 : 1, 8);
    o.kv_pages = between(6, 30);
    o.state_slots = one_in(2) ? 0 : 2 + 2 * o.max_sequences + between(0, 6);
    o.snapshot_interval_pages = between(0, 3);
    return o;
  }

  Request choose_request() {
    auto prompt =
        test_prompt(between(1, 200), between(1, 3));  // three texts that begin alike whatever their length
    if (one_in(2)) {
      const auto own = test_prompt(between(1, 70), static_cast<int>(rng_() % 1000) + 10);
      prompt.insert(prompt.end(), own.begin(), own.end());
    }
    Request r = greedy(std::move(prompt), between(1, 60));
    r.sampling.ignore_eos = !one_in(4);
    if (one_in(2)) {
      r.sampling.temperature = 0.8F;
      r.sampling.seed = rng_();
      if (one_in(2)) r.sampling.top_p = 0.9F;
      if (one_in(3)) r.sampling.top_k = 20;
    }
    if (one_in(on_device_ ? 20 : 3)) r.sampling.presence_penalty = 0.7F;
    if (one_in(on_device_ ? 20 : 3)) r.sampling.repetition_penalty = 1.2F;
    if (one_in(4)) r.stop_tokens = {between(2, 300), between(2, 300), between(2, 300)};
    if (one_in(4)) r.sampling.min_tokens = between(1, 10);
    if (one_in(5)) r.logprobs = 2;
    if (one_in(5)) r.priority = between(0, 2);
    return r;
  }

  std::mt19937 rng_;
  bool tight_, on_device_;
};

TEST(RandomEngine, EveryAnswerEqualsItsSoloRunAndNothingIsHeldAtTheEnd) {
  const auto first = static_cast<unsigned>(std::max(1, testing::UnitTest::GetInstance()->random_seed()));
  std::uint64_t preemptions = 0, accepted = 0, hits = 0;
  constexpr unsigned kSeeds = (40 + STRATA_EACH - 1) / STRATA_EACH;
  for (unsigned seed = first; seed < first + kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("--gtest_random_seed={}", seed));
    RandomWork work(seed, seed % 2 == 0);
    work.run();
    preemptions += work.preemptions, accepted += work.accepted, hits += work.hits;
  }
  EXPECT_GT(preemptions, kSeeds / 2);  // each of the tight ones, which are half, brings about three
  EXPECT_GT(accepted, 100 * kSeeds / 40);
  EXPECT_GT(hits, 25 * kSeeds);
}

TEST(RandomEngine, StepsBegunAheadChangeNoAnswer) {
  const auto first = static_cast<unsigned>(std::max(1, testing::UnitTest::GetInstance()->random_seed()));
  std::uint64_t preemptions = 0, hits = 0;
  int ahead = 0;
  constexpr unsigned kSeeds = (24 + STRATA_EACH - 1) / STRATA_EACH;
  for (unsigned seed = first; seed < first + kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("--gtest_random_seed={}", seed));
    RandomWork work(seed, seed % 2 == 0, true);
    work.run();
    preemptions += work.preemptions, hits += work.hits, ahead += work.ahead;
  }
  EXPECT_GT(preemptions, 10 * kSeeds / 24);
  EXPECT_GT(hits, 500 * kSeeds / 24);
  EXPECT_GT(ahead, 200 * static_cast<int>(kSeeds) / 24);
}

}  // namespace
}  // namespace strata
