// A model written as GGUF and read back is the model: every tensor of every family, at every type's accuracy.
#include "loader/gguf_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loader/gguf_files.h"
#include "loader/gguf_plan.h"
#include "tensor/convert.h"

namespace strata {
namespace {

using testing::HasSubstr;

const std::filesystem::path kGolden = STRATA_SOURCE_DIR "/tests/golden";

// Every tensor of a checkpoint as f32, in the layout that GGUF files are read in: experts stacked by part, inputs of delta
// nets apart.
std::map<std::string, std::vector<float>> tensors_of(const std::filesystem::path& path, GgufArch arch) {
  Checkpoint c = Checkpoint::open(path);
  PublishedRows rows(c);
  std::map<std::string, std::vector<float>> out;
  for (const GgufPlanned& p : plan_gguf(c, GgufModel(arch, c.config().text()), c.config().text())) {
    std::vector<float>& values = out[p.name.published];
    for (const GgufPiece& piece : p.pieces) {
      rows.take(piece);
      const std::int64_t size = rows.row_size(piece);
      for (std::int64_t r = 0; r < piece.count; ++r) {
        values.resize(values.size() + static_cast<std::size_t>(size));
        rows.read(piece, r, values.data() + values.size() - size);
      }
    }
  }
  if (c.config().text().get_bool("tie_word_embeddings", false)) c.skip("lm_head.weight");
  c.finish();
  return out;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double miss = 0, all = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    miss += std::pow(a[i] - b[i], 2);
    all += std::pow(a[i], 2);
  }
  return std::sqrt(miss / all);
}

struct Golden {
  const char* name;
  GgufArch arch;
};

class GgufExport : public testing::TestWithParam<Golden> {};

TEST_P(GgufExport, KeepsEveryTensor) {
  const TempFolder folder;
  const auto before = tensors_of(kGolden / GetParam().name, GetParam().arch);
  ASSERT_GT(before.size(), 10U);
  const GgufExportSummary summary = export_gguf(kGolden / GetParam().name, folder / "m.gguf", {.type = DType::kBF16});
  EXPECT_EQ(summary.tensors, before.size());
  EXPECT_FALSE(summary.vocabulary) << "golden models have none";
  const auto after = tensors_of(folder / "m.gguf", GetParam().arch);
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, values] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    const std::vector<float>& read = after.at(name);
    ASSERT_EQ(read.size(), values.size()) << name;
    // 1 + w and -exp(w) are kept in f32; all else is bf16 there and here.
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(read[i], values[i], 3e-7) << name << " " << i;
  }
  // A GGUF file written as GGUF again is the same file.
  export_gguf(folder / "m.gguf", folder / "n.gguf", {.type = DType::kBF16});
  EXPECT_EQ(tensors_of(folder / "n.gguf", GetParam().arch), after);
}

TEST_P(GgufExport, ConfigurationSurvives) {
  const TempFolder folder;
  export_gguf(kGolden / GetParam().name, folder / "m.gguf", {.type = DType::kBF16});
  const Checkpoint golden = Checkpoint::open(kGolden / GetParam().name), file = Checkpoint::open(folder / "m.gguf");
  const Json a = golden.config().text(), b = file.config().text();
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                          "intermediate_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
                          "shared_expert_intermediate_size", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim"}) {
    if (!a.has(key)) continue;  // qwen3_moe may call it num_local_experts
    const bool unused = (has_latent_attention(GetParam().arch) && key == std::string_view("head_dim")) ||
                        (is_nemotron(GetParam().arch) && key == std::string_view("intermediate_size"));
    if (unused) continue;
    EXPECT_EQ(b.get_int(key), a.get_int(key)) << key;
  }
  if (a.has("rms_norm_eps")) {
    EXPECT_NEAR(b.get_float("rms_norm_eps"), a.get_float("rms_norm_eps"), 1e-12);
  }
  EXPECT_EQ(b.get_bool("tie_word_embeddings"), a.get_bool("tie_word_embeddings"));
  if (GetParam().arch == GgufArch::kGemma3 || GetParam().arch == GgufArch::kGemma4) {
    EXPECT_EQ(b.get_strings("layer_types"), a.get_strings("layer_types"));
    EXPECT_EQ(b.get_int("sliding_window"), a.get_int("sliding_window"));
    EXPECT_EQ(b.at("rope_parameters").at("sliding_attention").get_float("rope_theta"), 10000);
    EXPECT_EQ(b.at("rope_parameters").at("full_attention").get_float("rope_theta"), 1000000);
    return;
  }
  // (the logits of whole models say the rest: tests/model/gguf_test.cpp)
  if (has_latent_attention(GetParam().arch) || has_mamba(GetParam().arch)) return;
  EXPECT_EQ(b.at("rope_parameters").get_float("rope_theta"), a.at("rope_parameters").get_float("rope_theta"));
  EXPECT_EQ(b.at("rope_parameters").get_float("partial_rotary_factor"), a.at("rope_parameters").get_float("partial_rotary_factor", 1));
  EXPECT_EQ(b.get("rope_parameters").has("factors"), a.at("rope_parameters").get_string("rope_type") == "llama3");
  if (!has_delta_nets(GetParam().arch)) return;
  EXPECT_EQ(b.get_strings("layer_types"), a.get_strings("layer_types"));
}

INSTANTIATE_TEST_SUITE_P(All, GgufExport,
                         testing::Values(Golden{"llama", GgufArch::kLlama}, Golden{"llama3_rope", GgufArch::kLlama},
                                         Golden{"qwen2", GgufArch::kQwen2}, Golden{"qwen3", GgufArch::kQwen3},
                                         Golden{"qwen3_moe", GgufArch::kQwen3Moe}, Golden{"smollm3", GgufArch::kSmolLm3},
                                         Golden{"gemma3", GgufArch::kGemma3}, Golden{"gemma4", GgufArch::kGemma4},
                                         Golden{"gemma4_moe", GgufArch::kGemma4}, Golden{"gpt_oss", GgufArch::kGptOss},
                                         Golden{"minimax_m2", GgufArch::kMiniMaxM2}, Golden{"deepseek_v3", GgufArch::kDeepSeek2},
                                         Golden{"mistral4", GgufArch::kMistral4}, Golden{"nemotron_h", GgufArch::kNemotronHMoe},
                                         Golden{"granitemoehybrid", GgufArch::kGraniteHybrid}, Golden{"qwen3_next", GgufArch::kQwen3Next},
                                         Golden{"qwen3_5", GgufArch::kQwen35}, Golden{"qwen3_5_moe", GgufArch::kQwen35Moe},
                                         Golden{"qwen3_5_moe_real", GgufArch::kQwen35Moe}),
                         [](const auto& test) { return test.param.name; });

TEST(GgufExportTypes, QuantisesWhatIsLargeAndReportsTheRest) {
  const TempFolder folder;
  const auto before = tensors_of(kGolden / "qwen3_5_moe_real", GgufArch::kQwen35Moe);
  // Largest relative error of a matrix that a type of so many bits may have on these bell-shaped weights.
  // (K types of 256 make the reader put heads in order that are no whole blocks: values must survive that too.)
  for (const auto& [type, error] : {std::pair{DType::kF16, 1e-3}, {DType::kQ8_0, 0.008}, {DType::kQ6_K, 0.03}, {DType::kQ5_K, 0.05},
                                    {DType::kQ4_K, 0.1}, {DType::kQ4_1, 0.1}, {DType::kIQ4_XS, 0.1}}) {
    SCOPED_TRACE(name(type));
    export_gguf(kGolden / "qwen3_5_moe_real", folder / "m.gguf", {.type = type});
    const Checkpoint c = Checkpoint::open(folder / "m.gguf");
    EXPECT_EQ(c.dtype_of("layers.0.mlp.gate.weight"), DType::kF32);
    EXPECT_EQ(c.dtype_of("layers.0.input_layernorm.weight"), DType::kF32);
    EXPECT_EQ(c.dtype_of("layers.0.linear_attn.conv1d.weight"), DType::kF32);
    const auto after = tensors_of(folder / "m.gguf", GgufArch::kQwen35Moe);
    for (const auto& [tensor, values] : before) EXPECT_LT(relative_error(values, after.at(tensor)), error) << tensor;
  }
}

TEST(GgufExportTypes, FallsBackWhereRowsAreNotWholeBlocks) {
  const GgufTensorName matrix{"blk.0.attn_v.weight", "", GgufLayout::kPlain}, table{"token_embd.weight", "", GgufLayout::kPlain};
  EXPECT_EQ(export_type(matrix, {8, 512}, {.type = DType::kQ4_K}), DType::kQ4_K);
  EXPECT_EQ(export_type(matrix, {8, 576}, {.type = DType::kQ4_K}), DType::kQ5_0);
  EXPECT_EQ(export_type(matrix, {8, 576}, {.type = DType::kQ6_K}), DType::kQ8_0);
  EXPECT_EQ(export_type(matrix, {8, 48}, {.type = DType::kQ8_0}), DType::kF16);
  EXPECT_EQ(export_type(table, {8, 512}, {.type = DType::kQ4_K}), DType::kQ6_K);
  EXPECT_EQ(export_type(table, {8, 576}, {.type = DType::kQ4_1}), DType::kQ8_0);
  EXPECT_EQ(export_type(table, {8, 576}, {.type = DType::kBF16}), DType::kBF16);
  EXPECT_EQ(export_type(table, {8, 576}, {.type = DType::kQ4_1, .embedding = DType::kQ4_0}), DType::kQ4_0);
}

TEST(GgufExportTypes, RefusesWhatItDoesNotKnow) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { export_gguf(kGolden / "qwen4_exp", folder / "m.gguf", {}); }), HasSubstr("no GGUF architecture is known for model_type"));
  EXPECT_THAT(error_of([&] { export_gguf(kGolden / "mistral_swa", folder / "m.gguf", {}); }), HasSubstr("sliding_window 24 has no form in GGUF's llama"));
  EXPECT_THAT(error_of([&] { export_gguf(kGolden / "llama", folder / "m.gguf", {.type = DType::kI8}); }), HasSubstr("i8 is not a type to write"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing half-written is left";
}

}  // namespace
}  // namespace strata
