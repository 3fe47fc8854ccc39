// Every family through the whole engine: prefix cache, drafts, mixed and chunked batches and preemption
// change no token; and no family is known by name outside the folders that build it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/engine_fixture.h"

namespace strata {
namespace {

const std::filesystem::path kSource = STRATA_SOURCE_DIR;

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "tests/golden")) {
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A shared beginning of more than a page, then each its own: the third repeats itself, so that n-grams are
// found; the last is drawn with a seed.
std::vector<Request> requests() {
  std::vector<Request> out;
  for (int i = 0; i < 4; ++i) {
    auto prompt = test_prompt(70, 1);
    const auto own = test_prompt(i == 2 ? 9 : i * 29 + 1, 50 + i);
    for (int n = 0; n < (i == 2 ? 6 : 1); ++n) prompt.insert(prompt.end(), own.begin(), own.end());
    out.push_back(greedy(prompt, 16));
    out.back().sampling.ignore_eos = true;
    out.back().logprobs = 2;
  }
  out.back().sampling.temperature = 0.9F;
  out.back().sampling.seed = 5;
  return out;
}

// Tokens and, to the bit, their probabilities.
testing::AssertionResult same(const Answer& got, const Answer& want) {
  if (!(got == want)) return testing::AssertionFailure() << "other tokens";
  if (got.logprobs.size() != want.logprobs.size()) return testing::AssertionFailure() << "other logprobs";
  for (std::size_t i = 0; i < got.logprobs.size(); ++i) {
    const TokenLogprob &a = got.logprobs[i], &b = want.logprobs[i];
    if (a.token != b.token || a.logprob != b.logprob || a.top != b.top) {
      return testing::AssertionFailure() << "token " << i << ": " << a.logprob << ", alone " << b.logprob;
    }
  }
  return testing::AssertionSuccess();
}

// Each request by itself, in one step a chunk, without cache or drafts.
std::vector<Answer> solo(const std::string& model, const std::vector<Request>& requests) {
  EngineOptions o;
  o.kv_pages = 32;
  o.prefix_cache = false;
  o.speculate = "none";
  o.max_sequences = 1;
  EngineFixture e(model, o);
  for (const Request& r : requests) e.submit(r);
  e.run();
  return e.answers;
}

EngineOptions small() {
  EngineOptions o;
  o.max_sequences = 4;
  o.kv_pages = 32;
  return o;
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, SameTokensWhateverHappensAround) {
  const std::string model = GetParam();
  const std::vector<Answer> alone = solo(model, requests());
  for (const Answer& a : alone) ASSERT_EQ(a.tokens.size(), 16U) << a.error;
  for (const auto& [speculate, chunk] : {std::pair{"none", 17}, {"ngram", 512}, {"draft", 40}}) {
    EngineOptions o = small();
    o.speculate = speculate;
    o.draft_model = test_model(model).model;  // the model drafts for itself: most drafts are right
    o.draft_tokens = 4;
    o.max_batch_tokens = chunk;
    EngineFixture e(model, o);
    for (int round = 0; round < 2; ++round) {
      for (const Request& r : requests()) ASSERT_GE(e.submit(r), 0) << e.error;
      e.run();
    }
    for (std::size_t i = 0; i < e.answers.size(); ++i) {
      ASSERT_TRUE(same(e.answers[i], alone[i % 4]))
          << speculate << ", chunks of " << chunk << ", request " << i;
    }
    // It did happen: hits of the second round, drafts, steps with part of a prompt.
    EXPECT_GE(e.answers.back().usage.cached_tokens, kPageTokens);
    EXPECT_EQ(e.core().metrics().drafted > 0, std::string_view(speculate) != "none");
    EXPECT_GT(e.core().metrics().steps, 16U);
    EXPECT_EQ(e.core().metrics().pages_used, 0);
    EXPECT_EQ(e.core().metrics().slots_used, 0);
  }
}

TEST_P(Families, PreemptionLosesNothing) {
  EngineOptions o = small();
  std::vector<Request> long_ones = requests();
  for (Request& r : long_ones) r.max_tokens = 70;
  const std::vector<Answer> alone = solo(GetParam(), long_ones);
  o.kv_pages = 6;
  EngineFixture tight(GetParam(), o);
  for (const Request& r : long_ones) ASSERT_GE(tight.submit(r), 0) << tight.error;
  tight.run();
  EXPECT_GT(tight.core().metrics().preemptions, 0U);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i].tokens.size(), 70U) << alone[i].error;
    EXPECT_TRUE(same(tight.answers[i], alone[i])) << "request " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Families, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

// A new architecture is layers, ops, a family file and how its checkpoint is read; nothing else may know of
// it.
std::vector<std::string> places_that_name_a_family(const std::vector<std::filesystem::path>& folders,
                                                   bool short_names) {
  std::vector<std::string> places;
  for (const auto& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      for (const Family& family : families()) {
        for (const std::string& architecture : family.architectures) {
          if (text.find(architecture) != std::string::npos)
            places.push_back(entry.path().filename().string() + ": " + architecture);
        }
        if (short_names && text.find('"' + family.name + '"') != std::string::npos)
          places.push_back(entry.path().filename().string() + ": " + family.name);
      }
    }
  }
  return places;
}

TEST(FamilyNames, AreOnlyInTheFoldersThatBuildThem) {
  const auto src = kSource / "src";
  EXPECT_EQ(places_that_name_a_family({src / "base", src / "tensor", src / "runtime", src / "server"}, true),
            std::vector<std::string>{});
  EXPECT_EQ(places_that_name_a_family({src / "text", src / "cli"}, false),
            std::vector<std::string>{});  // tokenizers have such names too
  // The planted fault: the folder that may name them is full of finds.
  EXPECT_GE(places_that_name_a_family({src / "model/families"}, true).size(), families().size());
}

}  // namespace
}  // namespace strata
