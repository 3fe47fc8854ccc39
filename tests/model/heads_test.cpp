// The output head in a type of its own, and the copy of it that drafts are made with: what is kept, what is
// refused, and that the model's own rows never meet the copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comparison.h"
#include "loader/dummy.h"
#include "model_copy.h"
#include "model_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

// Of golden `name`: qwen3_5_moe has a head of its own, tiny-hybrid's is tied to the embedding.
std::filesystem::path folder_of(const std::string& name) {
  return name == "tiny-hybrid" ? tiny_hybrid_folder() : golden_folder() / name;
}

struct Heads {
  LoadedModel loaded;
  explicit Heads(const std::string& name, const LoadOptions& options)
      : loaded(folder_of(name), {.threads = 1}, options) {}
  const Model& model() const { return loaded.model; }
  const Linear& head() const { return *model().head; }
  const Linear& drafts() const { return *model().mtp->head; }
};

Rows logits(LoadedModel& loaded) {
  const Pools pools(loaded.model, 2, 1, 0);
  const Piece piece{.tokens = iota(3, 65), .pages = iota(0, 2)};
  return loaded.run(pools, std::span(&piece, 1)).logits;
}

std::string refusal(const std::string& name, const LoadOptions& options) {
  return error_of([&] { const Heads heads(name, options); });
}

constexpr const char* kModels[] = {"qwen3_5_moe", "tiny-hybrid"};

TEST(DraftHead, IsACopyThatTheModelDoesNotRead) {
  for (const char* name : kModels) {
    Heads same(name, {});
    EXPECT_EQ(same.model().mtp->head, same.model().head);
    const Rows want = logits(same.loaded);
    for (const DType type : {DType::kF8E4M3, DType::kQ8_0, DType::kQ4_0}) {
      Heads copied(name, {.draft_head = type});
      EXPECT_EQ(copied.drafts().weight().dtype, type);
      EXPECT_EQ(copied.drafts().weight().shape, copied.head().weight().shape);
      EXPECT_EQ(copied.head().weight().dtype, DType::kBF16);
      EXPECT_EQ(copied.model().embedding->dtype, DType::kBF16);
      EXPECT_EQ(logits(copied.loaded), want) << name;
      // And would be seen if it did.
      Heads planted(name, {.draft_head = type});
      planted.loaded.model.head = planted.model().mtp->head;
      EXPECT_NE(logits(planted.loaded), want) << name;
    }
  }
}

TEST(DraftHead, TakesAsMuchMemoryAsItsType) {
  const Heads copied("tiny-hybrid", {.draft_head = DType::kF8E4M3});
  const auto elements = static_cast<double>(copied.head().outputs() * copied.head().inputs());
  EXPECT_NEAR(static_cast<double>(copied.drafts().weight().storage.bytes()) / elements, 1, 0.05);
  const Heads fours("tiny-hybrid", {.draft_head = DType::kQ4_0});
  EXPECT_NEAR(static_cast<double>(fours.drafts().weight().storage.bytes()) / elements, 18.0 / 32, 0.05);
}

TEST(DraftHead, IsNotQuantisedTwice) {
  for (const char* name : kModels) {
    EXPECT_THAT(refusal(name, {.head = DType::kQ8_0, .draft_head = DType::kQ4_0}),
                HasSubstr("the head is q8_0 already"))
        << name;
    EXPECT_THAT(refusal(name, {.weights = DType::kQ8_0, .draft_head = DType::kF8E4M3}),
                HasSubstr("the head is q8_0 already"))
        << name;
    const Heads wish(name,
                     {.weights = DType::kQ8_0, .draft_head = DType::kF8E4M3, .draft_head_if_worth = true});
    EXPECT_EQ(wish.model().mtp->head, wish.model().head);
    const Heads both(name, {.head = DType::kQ8_0, .draft_head = DType::kQ8_0});
    EXPECT_EQ(both.model().mtp->head, both.model().head);
    EXPECT_THAT(refusal(name, {.draft_head = DType::kI8}), HasSubstr("cannot be kept as i8")) << name;
  }
}

// A small head is not worth a copy, one of 64 MiB is.
TEST(DraftHead, IsMadeWhereItIsWorthIt) {
  const LoadOptions wish{.draft_head = DType::kF8E4M3, .draft_head_if_worth = true};
  const Heads small("tiny-hybrid", wish);
  EXPECT_EQ(small.model().mtp->head, small.model().head);
  nlohmann::json config =
      nlohmann::json::parse(std::ifstream(golden_folder() / "qwen3_5_moe" / "config.json"));
  for (const auto& [vocab, copied] : {std::pair{524288 - 64, false}, {524288, true}}) {  // rows of 64 in bf16
    config["vocab_size"] = vocab;
    const TempFolder folder;
    std::ofstream(folder / "config.json") << config;
    const ModelConfig large = ModelConfig::load(folder / "");
    Checkpoint checkpoint(dummy_source(large, DType::kBF16), large, "large");
    CpuOps ops({.threads = 2});
    const Model model = load_model(checkpoint, ops, wish);
    EXPECT_EQ(model.mtp->head != model.head, copied) << vocab;
  }
}

// --head: the head alone is coarser, by about what its type is.
TEST(Head, InATypeOfItsOwn) {
  for (const char* name : kModels) {
    Heads plain(name, {});
    const Rows want = logits(plain.loaded);
    for (const auto& [type, least, most] : {std::tuple{DType::kF8E4M3, 1e-3, 0.06},
                                            {DType::kQ8_0, 1e-4, 0.02},
                                            {DType::kQ4_0, 1e-2, 0.2},
                                            {DType::kF32, 0.0, 1e-5}}) {
      Heads heads(name, {.head = type});
      EXPECT_EQ(heads.head().weight().dtype, type);
      EXPECT_EQ(heads.model().mtp->head, heads.model().head);
      EXPECT_EQ(heads.model().embedding->dtype, DType::kBF16);
      const double error = relative_error(logits(heads.loaded), want);
      EXPECT_GE(error, least) << name << ' ' << strata::name(type);
      EXPECT_LE(error, most) << name << ' ' << strata::name(type);
    }
    // The head stays finer than the rest.
    const Heads finer(name, {.weights = DType::kQ8_0, .head = DType::kBF16});
    EXPECT_EQ(finer.head().weight().dtype, DType::kBF16);
    EXPECT_EQ(finer.model().embedding->dtype, DType::kQ8_0);
  }
}

// A head that the checkpoint has in FP8 is not quantised again; it is taken as it is.
TEST(Head, AQuantisedOneStaysAsItIs) {
  const TempFolder folder;
  Copy model("qwen3_5_moe");
  const Tensor head = model.take("lm_head.weight");
  const Tensor codes = model.make("lm_head.weight", DType::kF8E4M3, head.shape()),
               scales = model.make("lm_head.weight_scale_inv", DType::kF32, {3, 1});
  for (std::int64_t i = 0; i < head.elements(); ++i)
    codes.data<std::uint8_t>()[i] = float_to_f8e4m3(to_float(head.data<BFloat16>()[i]) * 1000);
  for (int i = 0; i < 3; ++i) scales.data<float>()[i] = 1e-3F;
  const auto path = model.write(
      folder, "f8", {{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}}});
  const auto message = [&](const LoadOptions& options) {
    bool shared = false;
    const std::string error = error_of([&] {
      const LoadedModel loaded(path, {.threads = 1}, options);
      shared = loaded.model.mtp->head == loaded.model.head;
    });
    return shared ? "shared" : error;
  };
  EXPECT_EQ(message({}), "shared");
  EXPECT_EQ(message({.head = DType::kF8E4M3}), "shared");
  EXPECT_THAT(message({.head = DType::kQ4_0}), HasSubstr("the head is f8_e4m3 in the checkpoint"));
  EXPECT_THAT(message({.draft_head = DType::kQ4_0}), HasSubstr("the head is f8_e4m3 already"));
  EXPECT_THAT(message({.weights = DType::kBF16, .draft_head = DType::kQ4_0}),
              HasSubstr("the head is f8_e4m3 already"));
  EXPECT_EQ(message({.draft_head = DType::kQ4_0, .draft_head_if_worth = true}), "shared");
}

}  // namespace
}  // namespace strata::test
