// Hybrids of Mamba-2 and attention: nemotron_h (blocks of one mixer each, in any order) and granitemoehybrid
// (a mixer and a feed-forward a block, with multipliers).
#include <cmath>

#include "base/error.h"
#include "layers/mamba2.h"
#include "model/families/blocks.h"
#include "model/families/families.h"
#include "model/rope.h"

namespace strata {
namespace {

// The mixer under `w` and its tensors; `norm` is the stream's norm before it.
std::unique_ptr<TransformerLayer> mamba2(const Weights& w, const Mamba2Config& config, Sublayer sublayer,
                                         const TextConfig& c, bool bias, bool conv_bias) {
  const std::int64_t inner = std::int64_t{config.heads} * config.head_dim,
                     channels = inner + 2 * std::int64_t{config.groups} * config.state_dim;
  Mamba2Weights weights{
      .sublayer = std::move(sublayer),
      .in = w.linear({{.name = "in_proj", .outputs = inner + channels + config.heads, .bias = bias}}, c.dim),
      .conv =
          w.vector("conv1d.weight", {channels, 1, config.conv_width}).reshape({channels, config.conv_width}),
      .conv_bias = conv_bias ? w.vector("conv1d.bias", {channels}) : Tensor{},
      .a_log = w.vector("A_log", {config.heads}),
      .dt_bias = w.vector("dt_bias", {config.heads}),
      .d = w.vector("D", {config.heads}),
      .norm = w.norm("norm", inner, c.eps),
      .out = w.linear({{.name = "out_proj", .outputs = c.dim, .bias = bias}}, inner)};
  return std::make_unique<Mamba2>(config, std::move(weights));
}

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c, Sublayer sublayer,
                                            float scale, bool bias, std::shared_ptr<const Rope> rope) {
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  AttentionWeights weights{.sublayer = std::move(sublayer),
                           .qkv = w.linear({{.name = "q_proj", .outputs = q, .bias = bias},
                                            {.name = "k_proj", .outputs = kv, .bias = bias},
                                            {.name = "v_proj", .outputs = kv, .bias = bias}},
                                           c.dim),
                           .out = w.linear({{.name = "o_proj", .outputs = c.dim, .bias = bias}}, q),
                           .rope = std::move(rope)};
  const AttentionConfig config{
      .heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .scale = scale};
  return std::make_unique<Attention>(config, std::move(weights));
}

// ---- nemotron_h ----

// "mamba", "attention", "moe" or "mlp" of each block, from the list or from the older pattern of letters.
std::vector<std::string> block_types(const Json& config) {
  std::vector<std::string> types;
  if (config.has("layers_block_type")) {
    for (const std::string& type : config.get_strings("layers_block_type")) {
      types.push_back(type == "linear_attention" ? "mamba" : type == "full_attention" ? "attention" : type);
    }
    return types;
  }
  for (const char letter : config.get_string("hybrid_override_pattern")) {
    switch (letter) {
      case 'M':
        types.emplace_back("mamba");
        break;
      case '*':
        types.emplace_back("attention");
        break;
      case 'E':
        types.emplace_back("moe");
        break;
      case '-':
        types.emplace_back("mlp");
        break;
      default:
        throw Error("{}: hybrid_override_pattern has a block \"{}\"", config.origin(), letter);
    }
  }
  return types;
}

Ffn plain_mlp(const Weights& w, std::int64_t ffn, const TextConfig& c, bool bias) {
  return {.in = w.linear({{.name = "up_proj", .outputs = ffn, .bias = bias}}, c.dim),
          .down = w.linear({{.name = "down_proj", .outputs = c.dim, .bias = bias}}, ffn),
          .activation = c.activation,
          .gated = false};
}

std::unique_ptr<TransformerLayer> nemotron_moe(const Weights& w, const TextConfig& c, Sublayer sublayer) {
  const Json& j = w.config();
  const int experts = j.get_int("n_routed_experts"), ffn = j.get_int("moe_intermediate_size"),
            latent = j.get_int("moe_latent_size", 0);
  const bool bias = j.get_bool("mlp_bias", false);
  const std::int64_t width = latent > 0 ? latent : c.dim;
  MoeWeights weights{
      .sublayer = std::move(sublayer),
      .router = w.exact({{.name = "gate", .outputs = experts}}, c.dim),
      .choice_bias = w.vector("gate.e_score_correction_bias", {experts}),
      .in = w.at("experts").experts(experts, {{.name = "up_proj", .outputs = ffn}}, "up_proj", width),
      .down = w.at("experts").experts(experts, {{.name = "down_proj", .outputs = width}}, "down_proj", ffn)};
  if (latent > 0) {
    weights.latent_in = w.linear({{.name = "fc1_latent_proj", .outputs = latent, .bias = bias}}, c.dim);
    weights.latent_out = w.linear({{.name = "fc2_latent_proj", .outputs = c.dim, .bias = bias}}, latent);
  }
  if (w.has("shared_experts.up_proj.weight")) {
    weights.shared =
        plain_mlp(w.at("shared_experts"), j.get_int("moe_shared_expert_intermediate_size"), c, bias);
  }
  const MoeConfig config{.experts = experts,
                         .top_k = j.get_int("num_experts_per_tok"),
                         .scoring = Scoring::kSigmoid,
                         .groups = j.get_int("n_group", 1),
                         .top_groups = j.get_int("topk_group", 1),
                         .normalise = j.get_bool("norm_topk_prob", true),
                         .scale = static_cast<float>(j.get_float("routed_scaling_factor", 1)),
                         .activation = c.activation,
                         .gated = false};
  return std::make_unique<Moe>(config, std::move(weights));
}

Model build_nemotron(const Weights& outer) {
  const Json& j = outer.config();
  if (j.has("time_step_limit") && j.get_floats("time_step_limit") != std::vector<double>{0, INFINITY}) {
    throw Error("{}: time_step_limit {} is not supported for nemotron_h", j.origin(),
                j.at("time_step_limit").dump());
  }
  const Weights w = outer.at("backbone");
  TextConfig c(j);
  c.activation = activation_of(j, "mlp_hidden_act");
  c.eps = static_cast<float>(j.get_float("layer_norm_epsilon", 1e-5));
  const Mamba2Config mamba{.heads = j.get_int("mamba_num_heads"),
                           .head_dim = j.get_int("mamba_head_dim"),
                           .groups = j.get_int("n_groups"),
                           .state_dim = j.get_int("ssm_state_size"),
                           .conv_width = j.get_int("conv_kernel", 4),
                           .dt_min = static_cast<float>(j.get_float("time_step_min", 0.001)),
                           .norm_groups = j.get_int("n_groups")};
  Model model;
  load_ends(model, outer, c, {.embedding = "backbone.embeddings", .norm = "backbone.norm_f"});
  const std::vector<std::string> types = block_types(j);
  for (int i = 0; i < static_cast<int>(types.size()); ++i) {
    const Weights layer = w.layer(i), mixer = layer.at("mixer");
    const std::string& type = types[static_cast<std::size_t>(i)];
    Sublayer sublayer{.norm = layer.norm("norm", c.dim, c.eps)};
    if (type == "mamba") {
      add_layer(model, i, "mamba2",
                mamba2(mixer, mamba, std::move(sublayer), c, j.get_bool("use_bias", false),
                       j.get_bool("use_conv_bias", true)));
    } else if (type == "attention") {  // without positions: the mixers around it know the order
      add_layer(model, i, "attention",
                attention(mixer, c, std::move(sublayer), 1 / std::sqrt(static_cast<float>(c.head_dim)),
                          j.get_bool("attention_bias", false), nullptr));
    } else if (type == "moe") {
      add_layer(model, i, "moe", nemotron_moe(mixer, c, std::move(sublayer)));
    } else if (type == "mlp") {
      add_layer(model, i, "mlp",
                std::make_unique<Mlp>(std::move(sublayer),
                                      plain_mlp(mixer, c.ffn, c, j.get_bool("mlp_bias", false))));
    } else {
      throw Error("{}: block {} is \"{}\"", j.origin(), i, type);
    }
  }
  outer.skip("mtp.");  // drafting layers
  return model;
}

// ---- granitemoehybrid ----

// gate | up in one matrix as published, or apart as in GGUF files.
Ffn packed_swiglu(const Weights& w, std::int64_t ffn, const TextConfig& c) {
  std::vector<LinearPart> parts = {{.name = "input_linear", .outputs = 2 * ffn}};
  if (w.has("gate_proj.weight"))
    parts = {{.name = "gate_proj", .outputs = ffn}, {.name = "up_proj", .outputs = ffn}};
  return {.in = w.linear(std::move(parts), c.dim),
          .down = w.linear({{.name = "output_linear", .outputs = c.dim}}, ffn),
          .activation = c.activation};
}

std::unique_ptr<TransformerLayer> granite_feed_forward(const Weights& w, const TextConfig& c,
                                                       Sublayer sublayer) {
  const Json& j = w.config();
  Ffn shared = packed_swiglu(w.at("shared_mlp"), j.get_int("shared_intermediate_size"), c);
  const int experts = j.get_int("num_local_experts", 0);
  if (experts == 0) return std::make_unique<Mlp>(std::move(sublayer), std::move(shared));
  const Weights m = w.at("block_sparse_moe");
  MoeWeights weights{
      .sublayer = std::move(sublayer),
      .router = m.exact({{.name = "router.layer", .outputs = experts}}, c.dim),
      .in =
          m.experts(experts, {{.name = "gate_proj", .outputs = c.ffn}, {.name = "up_proj", .outputs = c.ffn}},
                    "input_linear", c.dim),
      .down = m.experts(experts, {{.name = "down_proj", .outputs = c.dim}}, "output_linear", c.ffn),
      .shared = std::move(shared)};
  const MoeConfig config{.experts = experts,
                         .top_k = j.get_int("num_experts_per_tok"),
                         .scoring = Scoring::kTopKSoftmax,
                         .activation = c.activation};
  return std::make_unique<Moe>(config, std::move(weights));
}

Model build_granite(const Weights& w) {
  const Json& j = w.config();
  const TextConfig c(j);
  const auto number = [&](const char* key) { return static_cast<float>(j.get_float(key, 1)); };
  const auto rope =
      j.get_string("position_embedding_type", "nope") == "rope" ? load_rope(j, c.head_dim, w.ops()) : nullptr;
  const std::vector<double> limits =
      j.has("time_step_limit") ? j.get_floats("time_step_limit") : std::vector<double>{0, INFINITY};
  const Mamba2Config mamba{.heads = j.get_int("mamba_n_heads"),
                           .head_dim = j.get_int("mamba_d_head"),
                           .groups = j.get_int("mamba_n_groups", 1),
                           .state_dim = j.get_int("mamba_d_state"),
                           .conv_width = j.get_int("mamba_d_conv", 4),
                           .dt_min = static_cast<float>(limits.at(0)),
                           .dt_max = std::isinf(limits.at(1)) ? 0 : static_cast<float>(limits.at(1))};
  Model model;
  load_ends(model, w, c);
  model.embedding_scale = number("embedding_multiplier");
  model.logit_scale = 1 / number("logits_scaling");
  const std::vector<std::string> types = layer_types(j);
  for (int i = 0; i < c.layers; ++i) {
    const Weights layer = w.layer(i);
    const std::string& type = types.at(static_cast<std::size_t>(i));
    Sublayer before{.norm = layer.norm("input_layernorm", c.dim, c.eps),
                    .scale = number("residual_multiplier")};
    if (type == "mamba" || type == "linear_attention") {
      add_layer(model, i, "mamba2",
                mamba2(layer.at("mamba"), mamba, std::move(before), c, j.get_bool("mamba_proj_bias", false),
                       j.get_bool("mamba_conv_bias", true)));
    } else {
      add_layer(model, i, "attention",
                attention(layer.at("self_attn"), c, std::move(before), number("attention_multiplier"),
                          j.get_bool("attention_bias", false), rope));
    }
    add_layer(model, i, j.get_int("num_local_experts", 0) > 0 ? "moe" : "mlp",
              granite_feed_forward(layer, c,
                                   {.norm = layer.norm("post_attention_layernorm", c.dim, c.eps),
                                    .scale = number("residual_multiplier")}));
  }
  return model;
}

}  // namespace

std::vector<Family> mamba_hybrid_families() {
  return {
      {"nemotron_h",
       {"NemotronHForCausalLM"},
       {"nemotron_h"},
       "Nemotron-H and Nemotron 3: Mamba-2, attention and experts in any order",
       {"hybrid", "Mamba-2", "MoE", "latent experts", "shared expert"},
       build_nemotron,
       R"({"head_dim": 128})",
       {{"layers_block_type", "mamba|attention|moe|mlp|linear_attention|full_attention"},
        {"mamba_hidden_act", "silu|swish"},
        {"mamba_proj_bias", "false"},
        {"sliding_window", "null"}}},
      {"granitemoehybrid",
       {"GraniteMoeHybridForCausalLM"},
       {"granitemoehybrid"},
       "Granite 4: Mamba-2 and attention, dense and mixture of experts",
       {"hybrid", "Mamba-2", "MoE", "shared expert", "multipliers"},
       build_granite,
       "{}",
       {{"layer_types", "mamba|attention|linear_attention|full_attention"},
        {"hidden_act", "silu|swish"},
        {"normalization_function", "rmsnorm"},
        {"position_embedding_type", "rope|nope"}}},
  };
}

}  // namespace strata
