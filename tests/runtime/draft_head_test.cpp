// Drafts made with a quantised copy of the head: the answers, log probabilities too, are those without
// drafts, greedy and sampled, and nearly as many drafts are accepted as with the head itself.
#include <gtest/gtest.h>

#include "runtime/device_like_ops.h"
#include "runtime/engine_fixture.h"

namespace strata {
namespace {

constexpr DType kTypes[] = {DType::kF8E4M3, DType::kQ8_0, DType::kQ4_0};

TestModel loaded(const std::string& name, const LoadOptions& options, bool device = false) {
  TestModel m = test_model(name);
  m.ops = device ? std::make_shared<DeviceLikeOps>(CpuOptions{.threads = 2}) : cpu_ops();
  const std::filesystem::path source = STRATA_SOURCE_DIR;
  Checkpoint checkpoint =
      Checkpoint::open(name == "tiny-hybrid" ? source / "models" / name : source / "tests/golden" / name);
  m.model = std::make_shared<const Model>(load_model(checkpoint, *m.ops, options));
  return m;
}

EngineOptions drafting(const char* speculate) {
  EngineOptions o;
  o.speculate = speculate;
  o.draft_tokens = o.speculate == "none" ? 0 : 3;
  o.max_sequences = 5;
  return o;
}

// Greedy, sampled, sampled with penalties and a minimum length.
std::vector<Request> requests() {
  std::vector<Request> all;
  for (int i = 0; i < 9; ++i) {
    Request r = greedy(test_prompt(20 + 13 * i, i), 50);
    if (i % 3 == 1) r.sampling = {.temperature = 0.8F, .top_p = 0.9F, .seed = i};
    if (i % 3 == 2) r.sampling = {.temperature = 1.2F, .top_k = 40, .frequency_penalty = 0.5F, .seed = i};
    r.sampling.ignore_eos = true;
    r.logprobs = 1;
    all.push_back(std::move(r));
  }
  return all;
}

struct Outcome {
  std::vector<Answer> answers;
  double drafted = 0, accepted = 0;
};

Outcome run(const TestModel& model, const char* speculate) {
  EngineFixture e(model, drafting(speculate));
  for (Request& r : requests()) e.submit(std::move(r));
  e.run();
  const EngineMetrics& m = e.core().metrics();
  return {e.answers, static_cast<double>(m.drafted), static_cast<double>(m.accepted)};
}

bool same(const Outcome& a, const Outcome& b) {
  if (a.answers != b.answers) return false;
  for (std::size_t i = 0; i < a.answers.size(); ++i) {
    for (std::size_t t = 0; t < a.answers[i].logprobs.size(); ++t)
      if (a.answers[i].logprobs[t].logprob != b.answers[i].logprobs[t].logprob) return false;
  }
  return true;
}

TEST(DraftHead, ChangesNoAnswer) {
  for (const char* name : {"tiny-hybrid", "qwen3_5_moe"}) {
    const Outcome want = run(test_model(name), "none"), head = run(test_model(name), "mtp");
    ASSERT_EQ(want.answers.front().tokens.size(), 50U);
    ASSERT_TRUE(same(head, want)) << name;
    for (const bool device : {false, true}) {
      for (const DType type : kTypes) {
        const Outcome copy = run(loaded(name, {.draft_head = type}, device), "mtp");
        EXPECT_TRUE(same(copy, want)) << name << ' ' << strata::name(type);
        EXPECT_GT(copy.drafted, 0);
      }
    }
  }
}

// The test above sees a verify row that meets the copy, be it for one in ten tokens.
TEST(DraftHead, ACopyThatVerifiesIsSeen) {
  const Outcome want = run(test_model("tiny-hybrid"), "none");
  for (const DType type : kTypes) {
    const TestModel model = loaded("tiny-hybrid", {.draft_head = type});
    auto wrong = std::const_pointer_cast<Model>(model.model);
    wrong->head = wrong->mtp->head;
    EXPECT_FALSE(same(run(model, "mtp"), want)) << strata::name(type);
  }
}

}  // namespace
}  // namespace strata
