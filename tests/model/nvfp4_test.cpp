// NVFP4 checkpoints in both published forms load to the model that their values are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "loader/gguf_export.h"
#include "loader/nvfp4.h"
#include "model_copy.h"
#include "tensor/quant.h"

namespace strata::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

enum class As : std::uint8_t { kPlain, kModelOpt, kCompressedTensors };

json settings(As as) {
  const json groups = {{"group_0",
                        {{"targets", {"Linear"}},
                         {"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}, {"dynamic", false}}}}}};
  if (as == As::kPlain) return {};
  const json ignore = {"lm_head", "re:.*mlp.gate$"};
  if (as == As::kModelOpt)
    return {{"quantization_config",
             {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"ignore", ignore}, {"config_groups", groups}}}};
  return {{"quantization_config",
           {{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}, {"ignore", ignore}, {"config_groups", groups}}}};
}

// Qwen3-MoE with its experts and attention in NVFP4, each matrix with another factor (a power of two, so that its reciprocal is
// exact); or, plain, the bf16 nearest to what those mean. `swap`: a planted fault, the elements of each byte changed over.
Copy quantised(As as, bool swap = false) {
  Copy model("qwen3_moe");
  int number = 0;
  for (const std::string& name : model.names()) {
    if (!name.ends_with("_proj.weight")) continue;
    const Tensor from = model.take(name);
    const std::int64_t rows = from[0], inputs = from[1];
    const float factor = std::ldexp(1.0F, -11 - number++ % 3);
    const std::string base = name.substr(0, name.size() - std::string(".weight").size());
    std::vector<float> row(static_cast<std::size_t>(inputs));
    std::vector<std::byte> blocks(bytes_of(DType::kNVFP4, inputs));
    Tensor codes, scales, plain;
    if (as == As::kPlain) {
      plain = model.make(name, DType::kBF16, {rows, inputs});
    } else {
      codes = model.make(base + (as == As::kModelOpt ? ".weight" : ".weight_packed"), DType::kU8, {rows, inputs / 2});
      scales = model.make(base + ".weight_scale", DType::kF8E4M3, {rows, inputs / 16});
      const bool modelopt = as == As::kModelOpt;
      *model.make(base + (modelopt ? ".weight_scale_2" : ".weight_global_scale"), DType::kF32, {1}).data<float>() = modelopt ? factor : 1 / factor;
      *model.make(base + (modelopt ? ".input_scale" : ".input_global_scale"), DType::kF32, {1}).data<float>() = 7;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < inputs; ++k) row[static_cast<std::size_t>(k)] = to_float(from.row<BFloat16>(r)[k]) / factor;
      quantize_row(DType::kNVFP4, row.data(), inputs, blocks.data());
      dequantize_row(DType::kNVFP4, blocks.data(), inputs, row.data());
      for (std::int64_t k = 0; k < inputs; ++k) {
        if (as == As::kPlain) {
          plain.row<BFloat16>(r)[k] = to_bfloat16(row[static_cast<std::size_t>(k)] * factor);
          continue;
        }
        const auto block = static_cast<std::size_t>(k / 16 * 9);
        if (k % 16 == 0) scales.row<std::uint8_t>(r)[k / 16] = static_cast<std::uint8_t>(blocks[block + 8]);
        if (k % 2 != 0) continue;
        const auto byte = static_cast<unsigned>(blocks[block + static_cast<std::size_t>(k % 16 / 2)]);
        codes.row<std::uint8_t>(r)[k / 2] = static_cast<std::uint8_t>(swap ? byte >> 4 | (byte & 15) << 4 : byte);
      }
    }
  }
  return model;
}

TEST(Nvfp4, BothFormsMeanWhatTheirValuesSay) {
  const TempFolder folder;
  const Rows plain = quantised(As::kPlain).logits(folder, "plain");
  EXPECT_EQ(quantised(As::kModelOpt).logits(folder, "modelopt", settings(As::kModelOpt)), plain);
  EXPECT_EQ(quantised(As::kCompressedTensors).logits(folder, "compressed", settings(As::kCompressedTensors)), plain);
  EXPECT_NE(quantised(As::kModelOpt, true).logits(folder, "swapped", settings(As::kModelOpt)), plain);
}

TEST(Nvfp4, CheckpointsGiveMatricesAndFactors) {
  const TempFolder folder;
  const auto path = quantised(As::kCompressedTensors).write(folder, "m", settings(As::kCompressedTensors));
  Checkpoint checkpoint = Checkpoint::open(path);
  const std::string name = "layers.0.self_attn.q_proj.weight";
  EXPECT_EQ(checkpoint.dtype_of(name), DType::kNVFP4);
  EXPECT_FALSE(checkpoint.has("layers.0.self_attn.q_proj.input_global_scale"));
  const float factor = *checkpoint.take(name + "_scale_2", {1}).data<float>();
  EXPECT_EQ(std::exp2(std::round(std::log2(factor))), factor);
  EXPECT_LT(factor, 1e-3F);
}

TEST(Nvfp4, IsQuantisedAgainForGguf) {
  const TempFolder folder;
  const auto path = quantised(As::kModelOpt).write(folder, "m", settings(As::kModelOpt));
  const auto plain = quantised(As::kPlain).write(folder, "plain");
  const auto logits = [&](const std::filesystem::path& from) {
    export_gguf(from, folder / "m.gguf", {.type = DType::kBF16});
    LoadedModel loaded(folder / "m.gguf", {.threads = 1});
    const Pools pools(loaded.model, 2, 1, 0);
    const Piece piece{.tokens = iota(1, 20), .pages = iota(0, 1)};
    return loaded.run(pools, std::span(&piece, 1)).logits;
  };
  EXPECT_EQ(logits(path), logits(plain));
}

std::string refusal(const Copy& model, const json& config) {
  const TempFolder folder;
  try {
    model.logits(folder, "m", config);
  } catch (const Error& e) {
    return e.what();
  }
  return "loaded";
}

TEST(Nvfp4, WhatDoesNotFitIsNamed) {
  const std::string base = "model.layers.1.self_attn.k_proj";
  Copy model = quantised(As::kModelOpt);
  model.take(base + ".weight_scale_2");
  EXPECT_THAT(refusal(model, settings(As::kModelOpt)), AllOf(HasSubstr(base + ".weight_scale_2"), HasSubstr("missing")));
  model = quantised(As::kModelOpt);
  const Shape shape = model.take(base + ".weight_scale").shape();
  model.make(base + ".weight_scale", DType::kF8E4M3, {shape[0], shape[1] * 2});
  EXPECT_THAT(refusal(model, settings(As::kModelOpt)), AllOf(HasSubstr(base + ".weight_scale:"), HasSubstr("expected f8_e4m3")));
  model = quantised(As::kModelOpt);
  *model.make(base + ".weight_scale_2", DType::kF32, {1}).data<float>() = NAN;
  EXPECT_THAT(refusal(model, settings(As::kModelOpt)), AllOf(HasSubstr(base), HasSubstr("factor")));

  model = quantised(As::kCompressedTensors);
  json config = settings(As::kCompressedTensors);
  config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 32;
  EXPECT_THAT(refusal(model, config), AllOf(HasSubstr("quantization_config"), HasSubstr("group_size 32")));
  config = settings(As::kCompressedTensors);
  config["quantization_config"]["format"] = "pack-quantized";
  EXPECT_THAT(refusal(model, config), HasSubstr("format \"pack-quantized\""));
  // Without the configuration's word for it nothing is guessed.
  EXPECT_THAT(refusal(model, {}), HasSubstr("weight"));
}

}  // namespace
}  // namespace strata::test
