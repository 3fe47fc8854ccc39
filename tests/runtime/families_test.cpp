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

std::vector<Request> requests() {
  std::vector<Request> out;
  for (int i = 0; i < 4; ++i) {
    auto prompt = test_prompt(70, 1);
    const auto own = test_prompt(i * 29 + 1, 50 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    out.push_back(greedy(prompt, 16));
    out.back().sampling.ignore_eos = true;
  }
  return out;
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
  EngineOptions plain = small();
  plain.prefix_cache = false;
  plain.speculate = "none";
  plain.max_sequences = 1;
  EngineFixture alone(model, plain);
  for (const Request& r : requests()) ASSERT_GE(alone.submit(r), 0) << alone.error;
  alone.run();
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
      ASSERT_EQ(e.answers[i], alone.answers[i % 4])
          << speculate << ", chunks of " << chunk << ", request " << i;
    }
    EXPECT_GE(e.answers.back().usage.cached_tokens, kPageTokens);
    EXPECT_EQ(e.core().metrics().pages_used, 0);
    EXPECT_EQ(e.core().metrics().slots_used, 0);
  }
}

TEST_P(Families, PreemptionLosesNothing) {
  EngineOptions o = small();
  std::vector<Request> long_ones = requests();
  for (Request& r : long_ones) r.max_tokens = 70;
  EngineFixture roomy(GetParam(), o);
  for (const Request& r : long_ones) roomy.submit(r);
  roomy.run();
  o.kv_pages = 6;
  EngineFixture tight(GetParam(), o);
  for (const Request& r : long_ones) ASSERT_GE(tight.submit(r), 0) << tight.error;
  tight.run();
  EXPECT_GT(tight.core().metrics().preemptions, 0U);
  EXPECT_EQ(tight.answers, roomy.answers);
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
