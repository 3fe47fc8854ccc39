// Every model of the tree opens, and its headers agree with its configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "loader/chat_template.h"
#include "loader/checkpoint.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = STRATA_SOURCE_DIR;

TEST(ModelsOfTheTree, EveryGoldenModelIsTakenWhole) {
  int models = 0;
  for (const auto& folder : fs::directory_iterator(kRoot / "tests" / "golden")) {
    if (!folder.is_directory()) continue;
    SCOPED_TRACE(folder.path().string());
    Checkpoint c = Checkpoint::open(folder.path());
    EXPECT_FALSE(c.config().architecture().empty());
    EXPECT_FALSE(c.config().model_type().empty());
    EXPECT_GT(c.config().text().get_int("vocab_size"), 0);
    EXPECT_THROW(c.finish(), Error);
    for (const TensorSummary& t : c.list()) {
      EXPECT_FALSE(t.name.starts_with("model."));
      const Tensor tensor = c.take(t.name, *c.shape_of(t.name));
      EXPECT_EQ(tensor.bytes(), t.bytes);
      EXPECT_EQ(tensor.dtype(), t.dtype);
    }
    c.finish();
    ++models;
  }
  EXPECT_GE(models, 20);
}

TEST(ModelsOfTheTree, EveryReferenceAndAdapterFileOpens) {
  int files = 0;
  for (const char* folder : {"tests/golden", "models/tiny-hybrid/lora"}) {
    for (const auto& file : fs::recursive_directory_iterator(kRoot / folder)) {
      if (file.path().extension() != ".safetensors") continue;
      EXPECT_GT(Checkpoint::open(file.path()).total_bytes(), 0U) << file.path();
      ++files;
    }
  }
  EXPECT_GE(files, 48);
}

TEST(ModelsOfTheTree, TinyHybridIsShardedTiedAndHasItsTemplate) {
  const fs::path folder = kRoot / "models" / "tiny-hybrid";
  Checkpoint c = Checkpoint::open(folder);
  EXPECT_EQ(c.config().architecture(), "Qwen3_5MoeForCausalLM");
  EXPECT_EQ(c.config().model_type(), "qwen3_5_moe_text");
  EXPECT_THAT(c.config().end_tokens(), testing::ElementsAre(1191));
  EXPECT_FALSE(c.config().sampling().temperature.has_value());
  EXPECT_FALSE(c.has("lm_head.weight"));
  const Tensor embedding = c.take("embed_tokens.weight", {1280, 256});
  EXPECT_EQ(embedding.dtype(), DType::kBF16);
  EXPECT_TRUE(c.take_if("mtp.fc.weight", {256, 512}).has_value());
  EXPECT_FALSE(c.take_if("mtp.nothing.weight", {256, 512}).has_value());
  c.skip("mtp.");
  c.skip("layers.");
  c.take("norm.weight", {256});
  c.finish();
  const auto text = load_chat_template(folder);
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(*text, testing::HasSubstr("<|im_start|>"));
}

}  // namespace
}  // namespace strata
