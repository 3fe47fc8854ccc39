// Dummy weights load as a checkpoint of their configuration does, and published shapes have the published
// sizes.
#include "loader/dummy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model_fixture.h"

namespace strata::test {
namespace {

class Dummy : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(Dummy, LoadsAndGivesFiniteLogits) {
  const auto& [name, matrices] = GetParam();
  const ModelConfig config = ModelConfig::load(golden_folder() / name);
  Checkpoint checkpoint(dummy_source(config, matrices), config, name);
  CpuOps ops(CpuOptions{.threads = 1});
  const Model model = load_model(checkpoint, ops);  // stops at missing tensors and at ones left over
  EXPECT_EQ(model.mtp != nullptr, config.text().has("mtp_num_hidden_layers"));
  const Pools pools(model, 2, 1, 0);
  const Piece piece{.tokens = iota(1, 70), .pages = iota(0, 2)};
  const PackedBatch batch(std::span(&piece, 1));
  const Scratch scratch(ops.arena());
  const Tensor logits = model.forward(batch.batch(), pools.memory(), ops).logits;
  double squares = 0;
  for (std::int64_t i = 0; i < logits.elements(); ++i) squares += std::pow(logits.data<float>()[i], 2);
  const double size = std::sqrt(squares / static_cast<double>(logits.elements()));
  EXPECT_GT(size, 1e-3);  // NaN fails
  EXPECT_LT(size, 1e3);
}

INSTANTIATE_TEST_SUITE_P(Families, Dummy,
                         ::testing::Combine(::testing::Values("llama", "qwen2", "qwen3", "qwen3_moe",
                                                              "qwen3_next", "qwen3_5", "qwen3_5_moe"),
                                            ::testing::Values(DType::kBF16, DType::kF8E4M3, DType::kNVFP4)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::string(name(std::get<1>(test.param)));
                         });

TEST(DummyShapes, HaveTheirPublishedSizes) {
  const std::map<std::string, double> billions = {{"qwen3-8b", 8.2},
                                                  {"qwen3-30b-a3b", 30.5},
                                                  {"qwen3-next-80b-a3b", 80},
                                                  {"qwen3.5-35b-a3b", 35},
                                                  {"qwen3.5-27b", 27}};
  for (const std::string& name : published_shapes()) {
    const ModelConfig config = published_shape(name);
    const Checkpoint checkpoint(dummy_source(config, DType::kBF16), config, name);
    EXPECT_NEAR(static_cast<double>(checkpoint.total_bytes()) / 2e9 / billions.at(name), 1, 0.03) << name;
  }
}

TEST(DummyShapes, SayWhatIsNotKnown) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message([] { published_shape("qwen9"); }).find("qwen3.5-35b-a3b"), std::string::npos);
  const ModelConfig other = ModelConfig::load(golden_folder() / "gpt_oss");
  EXPECT_NE(message([&] { dummy_source(other, DType::kBF16); }).find("gpt_oss"), std::string::npos);
  const ModelConfig config = published_shape("qwen3-8b");
  EXPECT_NE(message([&] { dummy_source(config, DType::kQ8_0); }).find("q8_0"), std::string::npos);
}

}  // namespace
}  // namespace strata::test
