// Whole models against recorded outputs of an independent implementation: logits, the stream layer by layer,
// greedy continuations, draft logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comparison.h"

namespace strata::test {
namespace {

std::vector<std::string> cases(const Reference& ref) {
  std::vector<std::string> out;
  for (const std::string& name : ref.names()) {
    if (name.starts_with("ids.")) out.push_back(name.substr(4));
  }
  return out;
}

// First layer of each block, in the order of blocks, and one past the last layer.
std::vector<std::size_t> block_starts(const Model& model) {
  std::vector<std::size_t> out;
  std::string last;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::string& name = model.layers[i].name;
    const std::string block = name.substr(0, name.find('.', name.find('.') + 1));
    if (block != last) out.push_back(i);
    last = block;
  }
  out.push_back(model.layers.size());
  return out;
}

// Draft logits in one pass and in chunks of 17: row j holds token j and the target's hidden state of token j
// - 1.
double check_drafts(LoadedModel& loaded, const Ints& ids, const Rows& hidden, const Rows& want, int chunk) {
  const Model& mtp = *loaded.model.mtp;
  const Pools pools(mtp, pages_for(ids.size()), 1, 0);
  Rows got;
  for (std::size_t at = 1; at < ids.size();) {
    const std::size_t end = std::min(ids.size(), at + static_cast<std::size_t>(chunk));
    const Piece piece{.tokens = Ints(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                     ids.begin() + static_cast<std::ptrdiff_t>(end)),
                      .start = static_cast<int>(at),
                      .pages = iota(0, pages_for(ids.size()))};
    const Rows before(hidden.begin() + static_cast<std::ptrdiff_t>(at) - 1,
                      hidden.begin() + static_cast<std::ptrdiff_t>(end) - 1);
    const StepRows step = loaded.run(mtp, pools, std::span(&piece, 1), before);
    got.insert(got.end(), step.logits.begin(), step.logits.end());
    at = end;
  }
  return worst(got, want, deviation(want));
}

void check_model(const std::filesystem::path& folder) {
  LoadedModel loaded(folder);
  const Reference ref(folder / "reference.safetensors");
  const std::vector<std::size_t> starts = block_starts(loaded.model);
  double logits = 0, hidden = 0, drafts = 0;
  for (const std::string& name : cases(ref)) {
    SCOPED_TRACE(name);
    const Ints ids = ref.ints("ids." + name);
    const Pools pools(loaded.model, pages_for(ids.size()), 1, 0);
    const Piece piece{.tokens = ids, .pages = iota(0, pages_for(ids.size()))};
    const StepRows step = loaded.run(loaded.model, pools, std::span(&piece, 1), {}, starts);
    const Rows want = ref.rows("logits." + name);
    logits = std::max(logits, worst(step.logits, want, deviation(want)));
    for (std::size_t b = 0; ref.has("hidden." + name + "." + std::to_string(b)); ++b) {
      ASSERT_LT(b, starts.size());
      const Rows stream = ref.rows("hidden." + name + "." + std::to_string(b));
      const bool last = b + 1 == starts.size();  // recorded after the final norm
      const double off = worst(last ? step.hidden : step.stream.at(starts[b]), stream, deviation(stream));
      EXPECT_LT(off, kTolerance) << "stream entering block " << b;
      hidden = std::max(hidden, off);
    }
    if (ref.has("greedy." + name)) {
      const std::string gap = "greedy_gap." + name;
      check_greedy(loaded, ids, ref.ints("greedy." + name),
                   ref.has(gap) ? ref.floats(gap) : std::vector<float>{});
    }
    if (!ref.has("mtp_logits." + name)) continue;
    ASSERT_TRUE(loaded.model.mtp != nullptr);
    for (const int chunk : {1 << 20, 17}) {
      drafts =
          std::max(drafts, check_drafts(loaded, ids, step.hidden, ref.rows("mtp_logits." + name), chunk));
    }
  }
  EXPECT_LT(logits, kTolerance);
  EXPECT_LT(drafts, kTolerance);
  std::printf("  %-20s largest error in standard deviations: logits %.1e, stream %.1e, drafts %.1e\n",
              folder.filename().c_str(), logits, hidden, drafts);
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, MatchesReference) { check_model(golden_folder() / GetParam()); }

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return test.param; });

TEST(TinyHybrid, MatchesReference) { check_model(tiny_hybrid_folder()); }

// The planted fault: a weight that is off by little must show.
TEST(GoldenTest, SeesAChangedNorm) {
  const auto folder = golden_folder() / "qwen3_5";
  LoadedModel loaded(folder);
  const Reference ref(folder / "reference.safetensors");
  loaded.model.norm.weight.data<float>()[5] *= 1.02F;
  const Piece piece{.tokens = ref.ints("ids.t65"), .pages = iota(0, 2)};
  const Pools pools(loaded.model, 2, 1, 0);
  const Rows want = ref.rows("logits.t65");
  EXPECT_GT(worst(loaded.run(pools, std::span(&piece, 1)).logits, want, deviation(want)), kTolerance);
}

TEST(Registry, RefusesUnknownArchitectureAndListsTheKnown) {
  const ModelConfig config(
      Json::parse(R"({"architectures": ["GptNeoForCausalLM"], "model_type": "gpt_neo"})", "config.json"),
      Json());
  try {
    find_family(config);
    FAIL() << "accepted";
  } catch (const std::exception& e) {
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("GptNeoForCausalLM"),
                                         testing::HasSubstr("Qwen3NextForCausalLM")));
  }
}

}  // namespace
}  // namespace strata::test
