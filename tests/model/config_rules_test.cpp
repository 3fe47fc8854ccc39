// What a configuration says is done or refused by the key's name, never ignored; what it leaves out is as the
// reference implementation takes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "loader/safetensors.h"
#include "loader/safetensors_writer.h"
#include "loader/temp_folder.h"
#include "model/registry.h"
#include "model_fixture.h"

namespace strata::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

json config_of(const std::string& golden) {
  return json::parse(std::ifstream(golden_folder() / golden / "config.json"));
}

const Family& family_of(const json& config) {
  return find_family(ModelConfig(Json::parse(config.dump(), "config.json"), Json()));
}

// The golden model's weights under another configuration.
fs::path folder_with(const TempFolder& to, const std::string& name, const std::string& golden,
                     const json& config) {
  const fs::path folder = to / name;
  fs::create_directories(folder);
  fs::create_symlink(golden_folder() / golden / "model.safetensors", folder / "model.safetensors");
  std::ofstream(folder / "config.json") << config.dump();
  return folder;
}

Rows logits_of(const fs::path& folder, const std::string& golden) {
  LoadedModel loaded(folder, {.threads = 1});
  const Pools pools(loaded.model, 2, 1, 0);
  const Piece piece{.tokens = Reference(golden_folder() / golden / "reference.safetensors").ints("ids.t65"),
                    .pages = iota(0, 2)};
  return loaded.run(pools, std::span(&piece, 1)).logits;
}

std::string refusal(const std::string& golden, const json& config) {
  const TempFolder folder;
  try {
    LoadedModel loaded(folder_with(folder, "m", golden, config), {.threads = 1});
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

// What the families' rules are for: a key, and a value that asks for other mathematics.
struct Refused {
  const char* golden;
  const char* key;
  json value;
};

const std::vector<Refused>& refused() {
  static const json chunked = {"full_attention", "chunked_attention"};
  static const std::vector<Refused> all = {
      {"llama", "layer_types", {"full_attention", "sliding_attention", "full_attention"}},
      {"mistral_swa", "layer_types", chunked},
      {"smollm3", "layer_types", chunked},
      {"smollm3", "use_sliding_window", true},
      {"qwen2", "layer_types", chunked},
      {"qwen3", "layer_types", chunked},
      {"qwen3_moe", "layer_types", chunked},
      {"qwen3_moe", "use_sliding_window", true},
      {"qwen3_next", "layer_types", {"linear_attention", "full_attention", "mamba", "full_attention"}},
      {"qwen3_next", "hidden_act", "gelu"},
      {"qwen3_next", "mtp_use_dedicated_embeddings", true},
      {"qwen3_5", "layer_types", {"linear_attention", "sliding_attention"}},
      {"qwen3_5", "hidden_act", "gelu_pytorch_tanh"},
      {"qwen3_5", "mtp_use_dedicated_embeddings", true},
      {"qwen3_5_moe", "layer_types", "linear_attentions"},
      {"qwen3_5_moe", "hidden_act", "relu2"},
      {"qwen3_5_moe", "mtp_use_dedicated_embeddings", true},
      {"qwen4_exp", "layer_types", {"linear_attention", "sliding_attention"}},
      {"qwen4_exp", "hidden_act", "gelu"},
      {"qwen4_exp", "indexer_kv_heads", 2},
      {"gemma3", "layer_types", chunked},
      {"gemma3", "use_bidirectional_attention", true},
      {"gemma4", "layer_types", chunked},
      {"gemma4", "hidden_size_per_layer_input", 256},
      {"gemma4", "num_kv_shared_layers", 2},
      {"gemma4", "use_bidirectional_attention", "all"},
      {"gpt_oss", "layer_types", chunked},
      {"gpt_oss", "hidden_act", "gelu"},
      {"minimax_m2", "layer_types", {"full_attention", "linear_attention"}},
      {"minimax_m2", "scoring_func", "softmax"},
      {"minimax_m2", "use_routing_bias", false},
      {"minimax_m2", "use_qk_norm", false},
      {"minimax_m2", "qk_norm_type", "per_head"},
      {"minimax_m2", "attn_type_list", {1, 0, 1}},
      {"minimax_m2", "shared_intermediate_size", 512},
      {"deepseek_v3", "scoring_func", "softmax"},
      {"deepseek_v3", "topk_method", "greedy"},
      {"mistral4", "scoring_func", "sigmoid"},
      {"nemotron_h", "layers_block_type", {"mamba", "attention", "conv"}},
      {"nemotron_h", "mamba_hidden_act", "gelu"},
      {"nemotron_h", "mamba_proj_bias", true},
      {"nemotron_h", "sliding_window", 4096},
      {"granitemoehybrid", "layer_types", {"mamba", "attention", "rwkv", "mamba"}},
      {"granitemoehybrid", "hidden_act", "gelu"},
      {"granitemoehybrid", "normalization_function", "layernorm"},
      {"granitemoehybrid", "position_embedding_type", "alibi"},
  };
  return all;
}

TEST(ConfigRules, EveryRuleOfEveryFamilyRefusesByName) {
  std::set<std::pair<std::string, std::string>> tried;
  for (const Refused& r : refused()) {
    json config = config_of(r.golden);
    const std::string family = family_of(config).name;
    config[r.key] = r.value;
    EXPECT_THAT(refusal(r.golden, config),
                testing::AllOf(HasSubstr(std::string(r.key) + " " + r.value.dump()),
                               HasSubstr("not supported for " + family)))
        << r.golden;
    tried.emplace(family, r.key);
  }
  for (const Family& family : families()) {
    for (const ConfigRule& rule : family.rules)
      EXPECT_TRUE(tried.contains({family.name, rule.key}))
          << family.name << ": " << rule.key << " is not tried";
  }
}

// Keys as published config.json files hold them beside those of the golden models. They ask for nothing else.
TEST(ConfigRules, WhatPublishedFilesHoldIsAccepted) {
  const json fp8 = {{"quant_method", "fp8"},
                    {"fmt", "e4m3"},
                    {"activation_scheme", "dynamic"},
                    {"weight_block_size", {128, 128}}};
  const json mxfp4 = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}};
  const json with_window = {{"sliding_window", 16}, {"pretraining_tp", 1}};  // windows below the prompt's 65
  const json qwen = {{"use_sliding_window", false}, {"sliding_window", 16}, {"max_window_layers", 1}};
  const json hybrid = {{"attn_output_gate", true},         {"full_attention_interval", 4},
                       {"mamba_ssm_dtype", "float32"},     {"mtp_use_dedicated_embeddings", false},
                       {"mlp_only_layers", json::array()}, {"quantization_config", fp8}};
  const std::vector<std::pair<std::string, json>> published = {
      {"llama",
       with_window},  // some carry it over from what they were converted from; LlamaConfig has no windows
      {"mistral_swa", {{"hidden_act", "silu"}, {"attention_dropout", 0.0}}},
      {"smollm3",
       {{"use_sliding_window", false},
        {"sliding_window", 16},
        {"max_window_layers", 28},
        {"pretraining_tp", 2}}},
      {"qwen2", qwen},
      {"qwen3", qwen},
      {"qwen3_moe",
       {{"use_sliding_window", false},
        {"sliding_window", nullptr},
        {"max_window_layers", 48},
        {"quantization_config", fp8}}},
      {"qwen3_next", hybrid},
      {"qwen3_5", hybrid},
      {"qwen3_5_moe", hybrid},
      {"gemma3",
       {{"use_bidirectional_attention", false},
        {"cache_implementation", "hybrid"},
        {"attn_logit_softcapping", nullptr}}},
      {"gemma4",
       {{"use_bidirectional_attention", "vision"},
        {"use_double_wide_mlp", false},
        {"expert_intermediate_size", nullptr}}},
      {"gpt_oss",
       {{"swiglu_limit", 7.0},
        {"experts_per_token", 4},
        {"initial_context_length", 4096},
        {"quantization_config", mxfp4}}},
      {"minimax_m2",
       {{"scoring_func", "sigmoid"},
        {"use_routing_bias", true},
        {"use_qk_norm", true},
        {"qk_norm_type", "per_layer"},
        {"attn_type_list", {1, 1, 1}},
        {"shared_intermediate_size", 0},
        {"use_mtp", true},
        {"num_mtp_modules", 3},
        {"mtp_transformer_layers", 1},
        {"model_type", "minimax"},
        {"quantization_config", fp8}}},
      {"deepseek_v3",
       {{"scoring_func", "sigmoid"},
        {"topk_method", "noaux_tc"},
        {"moe_layer_freq", 1},
        {"ep_size", 1},
        {"aux_loss_alpha", 0.001},
        {"seq_aux", true},
        {"quantization_config", fp8}}},
      {"nemotron_h",
       {{"mamba_hidden_act", "silu"},
        {"mamba_proj_bias", false},
        {"sliding_window", nullptr},
        {"expand", 2},
        {"residual_in_fp32", false},
        {"rescale_prenorm_residual", true},
        {"partial_rotary_factor", 1.0}}},
      {"granitemoehybrid",
       {{"normalization_function", "rmsnorm"},
        {"init_method", "mup"},
        {"mamba_proj_bias", false},
        {"layer_types", {"mamba", "attention", "mamba", "mamba"}},
        {"rope_scaling", nullptr}}},
  };
  for (const auto& [golden, keys] : published) {
    SCOPED_TRACE(golden);
    json config = config_of(golden);
    const TempFolder folder;
    const Rows want = logits_of(folder_with(folder, "plain", golden, config), golden);
    config.update(keys);
    EXPECT_EQ(logits_of(folder_with(folder, "published", golden, config), golden), want);
  }
}

TEST(ConfigRules, WhatNoFamilyComputesIsNamed) {
  const auto rope = [](const std::string& kind) {
    return json{{"rope_type", kind}, {"rope_theta", 10000.0}, {"factor", 2.0}};
  };
  for (const std::string golden :
       {"llama", "mistral_swa", "smollm3", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5",
        "qwen4_exp", "gpt_oss", "minimax_m2", "deepseek_v3", "mistral4", "granitemoehybrid"}) {
    for (const std::string kind : {"dynamic", "longrope", "su"}) {
      json config = config_of(golden);
      config["rope_parameters"] = rope(kind);
      EXPECT_THAT(refusal(golden, config), HasSubstr("rope_type \"" + kind + "\" is not supported"))
          << golden;
    }
  }
  for (const std::string& golden : golden_names()) {
    for (const auto& [quantization, said] :
         {std::pair<json, std::string>{{{"quant_method", "gptq"}, {"bits", 4}}, "quant_method \"gptq\""},
          {{{"quant_method", "compressed-tensors"}}, "quant_method \"compressed-tensors\""},
          {{{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}}, "weight_block_size [64,64]"},
          {{{"quant_method", "fp8"}}, "weight_block_size null"}}) {
      json config = config_of(golden);
      config["quantization_config"] = quantization;
      EXPECT_THAT(refusal(golden, config), testing::AllOf(HasSubstr("quantization_config"), HasSubstr(said)))
          << golden;
    }
  }
  const auto with = [](const std::string& golden, const std::string& key, const json& value) {
    json config = config_of(golden);
    config[key] = value;
    return refusal(golden, config);
  };
  EXPECT_THAT(with("llama", "hidden_act", "quick_gelu"), HasSubstr("hidden_act \"quick_gelu\" is not known"));
  EXPECT_THAT(with("gemma3", "hidden_activation", "tanh"),
              HasSubstr("hidden_activation \"tanh\" is not known"));
  EXPECT_THAT(with("nemotron_h", "mlp_hidden_act", "gelu_fast"), HasSubstr("mlp_hidden_act"));
  EXPECT_THAT(with("nemotron_h", "time_step_limit", {0.0, 0.5}), HasSubstr("time_step_limit [0.0,0.5]"));
  EXPECT_THAT(with("gemma3", "tie_word_embeddings", false), HasSubstr("lm_head.weight"));
  EXPECT_THAT(with("qwen3", "attention_bias", true), HasSubstr("q_proj.bias"));
  EXPECT_THAT(with("nemotron_h", "attention_bias", true), HasSubstr("mixer.q_proj.bias"));
  EXPECT_THAT(with("llama", "mlp_bias", true), HasSubstr("gate_proj.bias"));
  EXPECT_THAT(with("mistral_swa", "layer_types", json::array({"full_attention"})),
              HasSubstr("layer_types names 1 layers of 3"));
}

// Keys that hold what the family assumes without them can go.
TEST(ConfigDefaults, AreThoseOfTheReference) {
  std::size_t left_out = 0;
  for (const std::string& golden : golden_names()) {
    const json config = config_of(golden);
    json shorter = config;
    const json defaults = json::parse(family_of(config).defaults);
    for (const auto& [key, value] : defaults.items()) {
      if (shorter.contains(key) && shorter[key] == value) left_out += shorter.erase(key);
    }
    // Lists that follow from other keys.
    for (const auto& [name, key] : {std::pair{"gpt_oss", "layer_types"},
                                    {"gemma4", "layer_types"},
                                    {"qwen3_next", "layer_types"},
                                    {"qwen3_5", "layer_types"},
                                    {"smollm3", "no_rope_layers"}}) {
      if (golden == name) left_out += shorter.erase(key);
    }
    if (shorter == config) continue;
    const TempFolder folder;
    EXPECT_EQ(logits_of(folder_with(folder, "short", golden, shorter), golden),
              logits_of(folder_with(folder, "whole", golden, config), golden))
        << golden;
  }
  EXPECT_GT(left_out, 15U);
}

TEST(ConfigDefaults, ANullIsAChoice) {
  json config = config_of("mistral_swa");
  const auto window = [&] {
    const ModelConfig model(Json::parse(config.dump(), "config.json"), Json());
    return checked_config(find_family(model), model).get("sliding_window").dump();
  };
  EXPECT_EQ(window(), "24");
  config["sliding_window"] = nullptr;
  EXPECT_EQ(window(), "null");
  config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
            {"text_config", config}};  // as Mistral Small 3.1 has it
  EXPECT_EQ(window(), "null");
  config["text_config"].erase("sliding_window");
  EXPECT_EQ(window(), "4096");
}

// Rotated channels by their number or by their share, whichever the file gives.
TEST(ConfigDefaults, RotatedChannelsOfMiniMax) {
  json config = config_of("minimax_m2");
  const TempFolder folder;
  const Rows want = logits_of(folder_with(folder, "share", "minimax_m2", config), "minimax_m2");
  json& rope = config["rope_parameters"];
  const double share = rope.at("partial_rotary_factor");
  rope.erase("partial_rotary_factor");
  EXPECT_NE(logits_of(folder_with(folder, "none", "minimax_m2", config), "minimax_m2"), want);
  config["rotary_dim"] = std::lround(config.at("head_dim").get<double>() * share);
  EXPECT_EQ(logits_of(folder_with(folder, "number", "minimax_m2", config), "minimax_m2"), want);
}

// One wrapper of text and vision holds text models of several kinds.
TEST(Families, AreFoundByTheTextModel) {
  const auto name = [](const json& config) { return family_of(config).name; };
  EXPECT_EQ(name({{"architectures", {"Mistral3ForConditionalGeneration"}},
                  {"text_config", {{"model_type", "mistral4"}}}}),
            "mistral4");
  EXPECT_EQ(name({{"architectures", {"Mistral3ForConditionalGeneration"}},
                  {"text_config", {{"model_type", "mistral"}}}}),
            "mistral");
  EXPECT_EQ(name({{"architectures", {"LlamaForCausalLM"}}}), "llama");
}

// Granite's multipliers may as well be in the weights: powers of two, so that not a bit differs.
TEST(Multipliers, AreFactorsOfTheWeightsTheyMeet) {
  const TempFolder folder;
  const auto file = Safetensors::open_file(golden_folder() / "granitemoehybrid" / "model.safetensors");
  std::deque<Buffer> buffers;
  std::vector<NamedTensor> tensors;
  for (const SourceTensor& t : file->tensors()) {
    Shape shape;
    for (const std::int64_t n : t.extents) shape.append(n);
    const Tensor copy = buffers.emplace_back(Buffer::host(t.bytes.size())).view(t.dtype, shape);
    std::copy(t.bytes.begin(), t.bytes.end(), copy.raw());
    float factor = 1;
    if (t.name.ends_with("embed_tokens.weight")) factor = 0.25F;
    if (t.name.ends_with("lm_head.weight")) factor = 8;
    if (t.name.ends_with("q_proj.weight")) factor = 4;
    for (const char* end : {"out_proj.weight", "o_proj.weight", "output_linear.weight"}) {
      if (t.name.ends_with(end)) factor = 2;
    }
    for (std::int64_t i = 0; factor != 1 && i < copy.elements(); ++i) {
      copy.data<BFloat16>()[i] = to_bfloat16(to_float(copy.data<BFloat16>()[i]) * factor);
    }
    tensors.push_back({t.name, copy});
  }
  json config = config_of("granitemoehybrid");
  const Rows want = logits_of(folder_with(folder, "plain", "granitemoehybrid", config), "granitemoehybrid");
  fs::create_directories(folder / "scaled");
  write_safetensors(folder / "scaled" / "model.safetensors", tensors);
  const auto with = [&](double embedding, double residual, double attention, double logits) {
    config["embedding_multiplier"] = embedding;
    config["residual_multiplier"] = residual;
    config["attention_multiplier"] = attention;
    config["logits_scaling"] = logits;
    std::ofstream(folder / "scaled" / "config.json") << config.dump();
    return logits_of(folder / "scaled", "granitemoehybrid");
  };
  EXPECT_EQ(with(4, 0.5, 0.25, 8), want);
  EXPECT_NE(with(1, 0.5, 0.25, 8), want);
  EXPECT_NE(with(4, 1, 0.25, 8), want);
  EXPECT_NE(with(4, 0.5, 1, 8), want);
  EXPECT_NE(with(4, 0.5, 0.25, 1), want);
}

}  // namespace
}  // namespace strata::test
