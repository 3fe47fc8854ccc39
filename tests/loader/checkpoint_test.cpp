// Checkpoint: names, one use of each tensor, left-overs, progress.
#include "loader/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "loader/safetensors_writer.h"
#include "loader/temp_folder.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A checkpoint of f32 tensors [2, 3] with these names, every element its place in the list.
class Fixture : public testing::Test {
 protected:
  Checkpoint checkpoint(const std::vector<std::string>& names, Checkpoint::Progress progress = {}) {
    const Buffer data = Buffer::host(names.size() * 24);
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Tensor t = data.view(DType::kF32, {2, 3}, i * 24);
      std::fill_n(t.data<float>(), 6, static_cast<float>(i));
      tensors.push_back({names[i], t});
    }
    write_safetensors(folder_ / "model.safetensors", tensors);
    return Checkpoint::open(folder_.path(), std::move(progress));
  }
  TempFolder folder_;
};
using CheckpointNames = Fixture;
using CheckpointTake = Fixture;

TEST(NormalName, UnwrapsTheTextModel) {
  EXPECT_EQ(normal_name("model.layers.3.self_attn.q_proj.weight"), "layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(normal_name("model.language_model.embed_tokens.weight"), "embed_tokens.weight");
  EXPECT_EQ(normal_name("language_model.model.norm.weight"), "norm.weight");
  EXPECT_EQ(normal_name("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(normal_name("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(normal_name("mtp.layers.0.mlp.up_proj.weight"), "mtp.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(normal_name("backbone.layers.0.norm.weight"), "backbone.layers.0.norm.weight");
  EXPECT_EQ(normal_name("modelling.weight"), "modelling.weight");
}

TEST_F(CheckpointNames, VisionIsSetAsideAndSaidSo) {
  testing::internal::CaptureStdout();  // where the default logger writes
  Checkpoint c =
      checkpoint({"model.language_model.norm.weight", "model.visual.blocks.0.w", "visual.merger.w",
                  "vision_tower.w", "multi_modal_projector.linear.weight", "model.embed_audio.w",
                  "model.language_model.layers.0.self_attn.rotary_emb.inv_freq", "mtp.norm.weight"});
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("5 vision and audio tensors (0.0 MB) are skipped"));
  EXPECT_EQ(c.list().size(), 2U);
  EXPECT_EQ(c.total_bytes(), 48U);
  EXPECT_FLOAT_EQ(c.take("norm.weight", {2, 3}).data<float>()[5], 0.0F);
  EXPECT_FLOAT_EQ(c.take("mtp.norm.weight", {2, 3}).data<float>()[5], 7.0F);
  c.finish();
}

TEST_F(CheckpointNames, TwoNamesForOneTensorAreAFault) {
  EXPECT_THAT(error_of([&] {
                checkpoint({"model.norm.weight", "norm.weight"});
              }),
              AllOf(HasSubstr("model.safetensors: tensor"), HasSubstr("is there twice")));
}

TEST_F(CheckpointTake, GivesAViewOnce) {
  Checkpoint c = checkpoint({"model.a", "model.b"});
  EXPECT_EQ(c.shape_of("b"), (Shape{2, 3}));
  EXPECT_EQ(c.dtype_of("b"), DType::kF32);
  EXPECT_FALSE(c.shape_of("c").has_value());
  EXPECT_FALSE(c.dtype_of("c").has_value());
  const Tensor b = c.take("b", {2, 3});
  EXPECT_FLOAT_EQ(b.row<float>(1)[2], 1.0F);
  EXPECT_TRUE(c.has("b"));
  EXPECT_EQ(error_of([&] {
              c.take("b", {2, 3});
            }),
            (folder_ / "model.safetensors").string() + ": tensor model.b is used twice");
}

TEST_F(CheckpointTake, NamesFileTensorAndBothShapes) {
  Checkpoint c = checkpoint({"model.a"});
  const std::string file = (folder_ / "model.safetensors").string();
  EXPECT_EQ(error_of([&] { c.take("a", {3, 2}); }), file + ": tensor model.a: shape [2, 3], expected [3, 2]");
  EXPECT_EQ(error_of([&] { c.take("a", {6}); }), file + ": tensor model.a: shape [2, 3], expected [6]");
  EXPECT_EQ(error_of([&] { c.take_if("a", {6}); }), file + ": tensor model.a: shape [2, 3], expected [6]");
  EXPECT_EQ(error_of([&] { c.take("layers.9.w", {4}); }),
            folder_.path().string() + ": tensor layers.9.w [4] is missing");
  EXPECT_FALSE(c.take_if("layers.9.w", {4}).has_value());
  c.take("a", {2, 3});  // a refused take does not consume
  c.finish();
}

TEST_F(CheckpointTake, LeftOversAreListedUpToTen) {
  std::vector<std::string> names = {"lm_head.weight"};
  for (int i = 0; i < 12; ++i) names.push_back(fmt::format("model.extra.{:02}", i));
  Checkpoint c = checkpoint(names);
  c.skip("lm_head.");
  c.take("extra.03", {2, 3});
  const std::string error = error_of([&] { c.finish(); });
  EXPECT_THAT(error,
              AllOf(HasSubstr("11 tensors are left over"), HasSubstr("model.extra.00 [2, 3] in"),
                    HasSubstr("model.safetensors"), HasSubstr("model.extra.10"), HasSubstr("\n  ...")));
  EXPECT_THAT(error,
              AllOf(Not(HasSubstr("extra.11")), Not(HasSubstr("extra.03")), Not(HasSubstr("lm_head"))));
  c.skip("extra.");
  c.finish();
}

TEST_F(CheckpointTake, ProgressCountsEveryByteOnce) {
  std::vector<std::pair<std::size_t, std::size_t>> reports;
  Checkpoint c = checkpoint({"model.a", "model.b", "model.c"},
                            [&](std::size_t done, std::size_t total) { reports.emplace_back(done, total); });
  c.take("a", {2, 3});
  c.skip("b");
  c.take("c", {2, 3});
  EXPECT_THAT(reports,
              testing::ElementsAre(testing::Pair(24, 72), testing::Pair(48, 72), testing::Pair(72, 72)));
}

TEST_F(CheckpointTake, AnUnalignedTensorIsCopied) {
  const std::string header = R"({"f":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string padded = header;
  while (padded.size() % 4 != 1) padded += ' ';
  const float values[2] = {1.5F, -2.0F};
  const auto file = folder_.write(
      "odd.safetensors", safetensors_bytes(padded, {reinterpret_cast<const char*>(values), sizeof values}));
  Checkpoint c = Checkpoint::open(file);
  const Tensor t = c.take("f", {2});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.raw()) % 4, 0U);
  EXPECT_FLOAT_EQ(t.data<float>()[0], 1.5F);
  EXPECT_FLOAT_EQ(t.data<float>()[1], -2.0F);
}

TEST_F(CheckpointTake, TensorsOutliveTheCheckpointWithItsStorage) {
  std::shared_ptr<const void> storage;
  Tensor t;
  {
    Checkpoint c = checkpoint({"a", "b"});
    t = c.take("b", {2, 3});
    storage = c.storage();
  }
  EXPECT_FLOAT_EQ(t.data<float>()[0], 1.0F);
}

TEST_F(CheckpointTake, FiveExtentsCannotBeTaken) {
  Checkpoint c = Checkpoint::open(folder_.write(
      "v.safetensors",
      safetensors_bytes(R"({"v":{"dtype":"U8","shape":[1,1,1,1,2],"data_offsets":[0,2]}})", "xy")));
  EXPECT_THAT(error_of([&] { c.shape_of("v"); }),
              HasSubstr("tensor v: shape [1, 1, 1, 1, 2] has more than 4 extents"));
  EXPECT_THAT(error_of([&] { c.take("v", {2}); }),
              HasSubstr("tensor v: shape [1, 1, 1, 1, 2], expected [2]"));
}

TEST(CheckpointOpen, SaysWhatItLookedFor) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { Checkpoint::open(folder.path()); }),
              HasSubstr("holds neither model.safetensors nor model.safetensors.index.json"));
  EXPECT_THAT(error_of([&] { Checkpoint::open(folder / "none"); }), HasSubstr("no such file or folder"));
  EXPECT_THAT(error_of([&] { Checkpoint::open(folder.write("a.bin", "x")); }), HasSubstr("not a checkpoint"));
  write_safetensors(folder / "x.safetensors", {});
  const Checkpoint c = Checkpoint::open(folder / "x.safetensors");
  EXPECT_FALSE(c.has_config());
  EXPECT_THAT(error_of([&] { c.config(); }), HasSubstr("x.safetensors: no config.json there"));
}

}  // namespace
}  // namespace strata
