// The plain decoders: llama, mistral, smollm3, qwen2, qwen3, qwen3_moe. Attention and a gated feed-forward,
// alike but for flags.
#include <algorithm>
#include <cmath>

#include "model/families/blocks.h"
#include "model/families/families.h"
#include "model/rope.h"

namespace strata {
namespace {

struct Flags {
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each query and key head
  bool windows = true;   // else sliding_window is not of this family and means nothing
};

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c, const Flags& flags,
                                            int window, std::shared_ptr<const Rope> rope) {
  const Weights a = w.at("self_attn");
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  AttentionWeights weights{.sublayer = {.norm = w.norm("input_layernorm", c.dim, c.eps)},
                           .qkv = a.linear({{.name = "q_proj", .outputs = q, .bias = flags.qkv_bias},
                                            {.name = "k_proj", .outputs = kv, .bias = flags.qkv_bias},
                                            {.name = "v_proj", .outputs = kv, .bias = flags.qkv_bias}},
                                           c.dim),
                           .out = a.linear({{.name = "o_proj", .outputs = c.dim, .bias = flags.out_bias}}, q),
                           .norm_eps = c.eps,
                           .rope = std::move(rope)};
  if (flags.qk_norm) {
    weights.q_norm = a.norm("q_norm", c.head_dim, c.eps).weight;
    weights.k_norm = a.norm("k_norm", c.head_dim, c.eps).weight;
  }
  const AttentionConfig config{.heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.head_dim,
                               .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                               .window = window};
  return std::make_unique<Attention>(config, std::move(weights));
}

// Qwen3-MoE: softmax over all experts, the chosen ones' weights made to sum to 1 when the configuration says
// so.
std::unique_ptr<TransformerLayer> moe(const Weights& w, const TextConfig& c) {
  const Json& config = w.config();
  const int experts = config.get_int(config.has("num_experts") ? "num_experts" : "num_local_experts");
  MoeWeights weights{.sublayer = {.norm = w.norm("post_attention_layernorm", c.dim, c.eps)},
                     .router = w.exact({{.name = "mlp.gate", .outputs = experts}}, c.dim)};
  load_experts(weights, w.at("mlp"), experts, config.get_int("moe_intermediate_size"), c.dim);
  const MoeConfig moe_config{.experts = experts,
                             .top_k = config.get_int("num_experts_per_tok"),
                             .normalise = config.get_bool("norm_topk_prob", false),
                             .activation = c.activation};
  return std::make_unique<Moe>(moe_config, std::move(weights));
}

bool sparse(const Json& config, int layer) {
  if (!config.has("num_experts") && !config.has("num_local_experts")) return false;
  if (config.has("mlp_only_layers")) {
    const std::vector<int> dense = config.get_ints("mlp_only_layers");
    if (std::find(dense.begin(), dense.end(), layer) != dense.end()) return false;
  }
  return (layer + 1) % std::max(1, config.get_int("decoder_sparse_step", 1)) == 0;
}

// SmolLM3: every so many layers have no positions. `no_rope_layers` holds 1 for a layer that does.
bool rotates(const Json& config, int layer) {
  if (config.has("no_rope_layers"))
    return config.get_ints("no_rope_layers").at(static_cast<std::size_t>(layer)) != 0;
  return !config.has("no_rope_layer_interval") || (layer + 1) % config.get_int("no_rope_layer_interval") != 0;
}

Model build(const Weights& w, const Flags& flags) {
  const TextConfig c(w.config());
  const auto rope = load_rope(w.config(), c.head_dim, w.ops());
  Model model;
  load_ends(model, w, c);
  for (int i = 0; i < c.layers; ++i) {
    const Weights layer = w.layer(i);
    add_layer(model, i, "attention",
              attention(layer, c, flags, flags.windows ? window_of(w.config(), i) : 0,
                        rotates(w.config(), i) ? rope : nullptr));
    if (sparse(w.config(), i)) {
      add_layer(model, i, "moe", moe(layer, c));
    } else {
      add_layer(
          model, i, "mlp",
          std::make_unique<Mlp>(Sublayer{.norm = layer.norm("post_attention_layernorm", c.dim, c.eps)},
                                load_swiglu(layer.at("mlp"), c.ffn, c.dim, c.activation, flags.mlp_bias)));
    }
  }
  return model;
}

Model build_llama(const Weights& w) {
  const bool bias = w.config().get_bool("attention_bias", false);
  return build(w, {.qkv_bias = bias,
                   .out_bias = bias,
                   .mlp_bias = w.config().get_bool("mlp_bias", false),
                   .windows = false});
}

Model build_mistral(const Weights& w) { return build(w, {}); }

Model build_qwen2(const Weights& w) { return build(w, {.qkv_bias = true}); }

Model build_qwen3(const Weights& w) {
  const bool bias = w.config().get_bool("attention_bias", false);
  return build(w, {.qkv_bias = bias, .out_bias = bias, .qk_norm = true});
}

}  // namespace

std::vector<Family> decoder_families() {
  return {
      {"llama",
       {"LlamaForCausalLM"},
       {"llama"},
       "Llama 2 and 3 and models shaped like them",
       {"llama3, yarn and linear RoPE"},
       build_llama,
       "{}",
       {{"layer_types", "full_attention"}}},
      {"mistral",
       {"MistralForCausalLM", "Mistral3ForConditionalGeneration"},
       {"mistral"},
       "Mistral and Ministral, dense",
       {"sliding window"},
       build_mistral,
       R"({"sliding_window": 4096, "num_key_value_heads": 8})",
       {{"layer_types", "full_attention|sliding_attention"}}},
      {"smollm3",
       {"SmolLM3ForCausalLM"},
       {"smollm3"},
       "SmolLM3",
       {"layers without positions"},
       build_llama,
       R"({"no_rope_layer_interval": 4})",
       {{"layer_types", "full_attention"}, {"use_sliding_window", "false"}}},
      {"qwen2",
       {"Qwen2ForCausalLM"},
       {"qwen2"},
       "Qwen2 and Qwen2.5, dense",
       {"biased q, k, v", "sliding window"},
       build_qwen2,
       R"({"use_sliding_window": false, "max_window_layers": 28})",
       {{"layer_types", "full_attention|sliding_attention"}}},
      {"qwen3",
       {"Qwen3ForCausalLM"},
       {"qwen3"},
       "Qwen3, dense",
       {"q and k norms", "sliding window"},
       build_qwen3,
       R"({"use_sliding_window": false, "max_window_layers": 28, "head_dim": 128})",
       {{"layer_types", "full_attention|sliding_attention"}}},
      {"qwen3_moe",
       {"Qwen3MoeForCausalLM"},
       {"qwen3_moe"},
       "Qwen3, mixture of experts",
       {"q and k norms", "MoE"},
       build_qwen3,
       R"({"use_sliding_window": false})",
       {{"layer_types", "full_attention"}, {"use_sliding_window", "false"}}},
  };
}

}  // namespace strata
