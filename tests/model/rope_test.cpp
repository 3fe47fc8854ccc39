// Rotary tables from configurations: the scalings against their definitions, and what is refused.
#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "ops/cpu/cpu_ops.h"

namespace strata {
namespace {

struct Table {
  std::unique_ptr<CpuOps> ops = std::make_unique<CpuOps>(CpuOptions{.threads = 1});
  std::shared_ptr<Rope> rope;
  std::int64_t pairs() const { return rope->inv_freq.elements(); }
  double at(std::int64_t i) const { return rope->inv_freq.data<float>()[i]; }
};

Table table(const std::string& config, int head_dim, const std::string& layer_type = "") {
  Table t;
  t.rope = load_rope(Json::parse(config, "config.json"), head_dim, *t.ops, layer_type);
  return t;
}

double plain(double base, double i, double dim) { return std::pow(base, -2 * i / dim); }

TEST(RopeTables, OldAndNewFormsAgree) {
  const Table a = table(R"({"rope_theta": 500000, "partial_rotary_factor": 0.25})", 64);
  const Table b = table(
      R"({"rope_parameters": {"rope_type": "default", "rope_theta": 500000, "partial_rotary_factor": 0.25}})",
      64);
  ASSERT_EQ(a.pairs(), 8);
  ASSERT_EQ(b.pairs(), 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(a.at(i), b.at(i));
    EXPECT_NEAR(a.at(i) / plain(500000, i, 16), 1, 1e-5);
  }
}

TEST(RopeTables, LayerTypesHaveTheirOwn) {
  const std::string config =
      R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1000000},
                                                     "sliding_attention": {"rope_theta": 10000}}})";
  EXPECT_NEAR(table(config, 32, "full_attention").at(3) * 8 / plain(1e6, 3, 32), 1, 1e-5);
  EXPECT_NEAR(table(config, 32, "sliding_attention").at(3) / plain(1e4, 3, 32), 1, 1e-5);
}

TEST(RopeTables, Llama3StretchesLongWavesOnly) {
  const Table t = table(
      R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000, "factor": 8, "low_freq_factor": 1,
                            "high_freq_factor": 4, "original_max_position_embeddings": 8192}})",
      128);
  for (int i = 0; i < 64; ++i) {
    const double f = plain(500000, i, 128), turns = 8192 * f / (2 * std::numbers::pi);
    const double keep = std::min(1.0, std::max(0.0, (turns - 1) / 3));
    EXPECT_NEAR(t.at(i) / (keep * f + (1 - keep) * f / 8), 1, 1e-5) << i;
  }
}

TEST(RopeTables, YarnInterpolatesSlowChannelsAndScalesAttention) {
  const Table t = table(
      R"({"max_position_embeddings": 131072, "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32,
                            "beta_fast": 32, "beta_slow": 1, "truncate": false, "original_max_position_embeddings": 4096}})",
      64);
  const auto channel = [](double turns) {
    return 64 * std::log(4096 / (turns * 2 * std::numbers::pi)) / (2 * std::log(150000.0));
  };
  const double low = channel(32), high = channel(1);
  for (int i = 0; i < 32; ++i) {
    const double f = plain(150000, i, 64),
                 interpolate = std::min(1.0, std::max(0.0, (i - low) / (high - low)));
    EXPECT_NEAR(t.at(i) / (f / 32 * interpolate + f * (1 - interpolate)), 1, 1e-5) << i;
  }
  EXPECT_NEAR(t.rope->scale, 0.1 * std::log(32.0) + 1, 1e-6);
  const Table both = table(
      R"({"max_position_embeddings": 163840, "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40,
                               "mscale": 0.707, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})",
      64);
  EXPECT_NEAR(both.rope->scale, (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1), 1e-6);
}

TEST(RopeTables, ProportionalPairsTheWholeHead) {
  const Table t = table(
      R"({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000}})",
      32);
  ASSERT_EQ(t.pairs(), 16);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(t.at(i), i < 4 ? plain(1e6, i, 32) : 0, 1e-6) << i;
}

TEST(RopeTables, StreamsAndLongContexts) {
  const Table t = table(
      R"({"rope_parameters": {"rope_theta": 10000, "mrope_section": [11, 11, 10], "mrope_interleaved": true,
                            "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 8192}})",
      64);
  EXPECT_EQ(t.rope->mrope_section, (std::array<int, 3>{11, 11, 10}));
  EXPECT_TRUE(t.rope->mrope_interleaved);
  EXPECT_EQ(t.rope->query_span, 8192);
}

TEST(RopeTables, RefuseWhatTheyDoNotKnow) {
  const auto error = [](const std::string& config, int head_dim) -> std::string {
    try {
      table(config, head_dim);
      return "accepted";
    } catch (const std::exception& e) {
      return e.what();
    }
  };
  EXPECT_THAT(
      error(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2}})", 64),
      testing::AllOf(testing::HasSubstr("config.json"), testing::HasSubstr("\"dynamic\" is not supported")));
  EXPECT_THAT(error(R"({"partial_rotary_factor": 0})", 64), testing::HasSubstr("0 of 64 head channels"));
  EXPECT_THAT(error(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000}})", 64),
              testing::HasSubstr("max_position_embeddings"));
}

}  // namespace
}  // namespace strata
