// Gemma 3: local and global attention with rotations of their own, norms before and after every sublayer.
#include <cmath>

#include "model/families/blocks.h"
#include "model/families/families.h"
#include "model/rope.h"

namespace strata {
namespace {

constexpr float kZeroCentred = 1;  // norms multiply by 1 + w

std::string layer_type(const Json& config, int layer) {
  const std::vector<std::string> types = layer_types(config);
  if (!types.empty()) return types[static_cast<std::size_t>(layer)];
  const int pattern = config.get_int("sliding_window_pattern", config.get_int("_sliding_window_pattern", 6));
  return (layer + 1) % pattern == 0 ? "full_attention" : "sliding_attention";
}

// Older configurations give the local layers a base of their own beside rope_theta, and scale the global ones
// only.
std::shared_ptr<const Rope> rope(const Weights& w, int head_dim, const std::string& type) {
  const Json& config = w.config();
  if (type == "full_attention" || config.get("rope_parameters").has(type))
    return load_rope(config, head_dim, w.ops(), type);
  const Json base = config.get("rope_local_base_freq");
  return load_rope(
      Json::parse("{\"rope_theta\": " + (base.is_null() ? "10000" : base.dump()) + "}", config.origin()),
      head_dim, w.ops());
}

Sublayer sublayer(const Weights& w, const TextConfig& c, std::string_view before, std::string_view after) {
  return {.norm = w.norm(before, c.dim, c.eps, kZeroCentred),
          .post = w.norm(after, c.dim, c.eps, kZeroCentred)};
}

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c, const std::string& type,
                                            std::shared_ptr<const Rope> rope) {
  const Json& j = w.config();
  const Weights a = w.at("self_attn");
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  const bool bias = j.get_bool("attention_bias", false);
  AttentionWeights weights{.sublayer = sublayer(w, c, "input_layernorm", "post_attention_layernorm"),
                           .qkv = a.linear({{.name = "q_proj", .outputs = q, .bias = bias},
                                            {.name = "k_proj", .outputs = kv, .bias = bias},
                                            {.name = "v_proj", .outputs = kv, .bias = bias}},
                                           c.dim),
                           .out = a.linear({{.name = "o_proj", .outputs = c.dim, .bias = bias}}, q),
                           .q_norm = a.norm("q_norm", c.head_dim, c.eps, kZeroCentred).weight,
                           .k_norm = a.norm("k_norm", c.head_dim, c.eps, kZeroCentred).weight,
                           .norm_eps = c.eps,
                           .rope = std::move(rope)};
  const AttentionConfig config{
      .heads = c.heads,
      .kv_heads = c.kv_heads,
      .head_dim = c.head_dim,
      .scale = 1 / std::sqrt(static_cast<float>(j.get_float("query_pre_attn_scalar", 256))),
      .window = type == "sliding_attention" ? j.get_int("sliding_window") : 0,
      .softcap = static_cast<float>(j.get_float("attn_logit_softcapping", 0))};
  return std::make_unique<Attention>(config, std::move(weights));
}

Model build(const Weights& w) {
  const Json& j = w.config();
  TextConfig c(j);
  c.activation = activation_of(j, "hidden_activation");
  Model model;
  load_ends(model, w, c, kZeroCentred);
  model.embedding_scale = std::sqrt(static_cast<float>(c.dim));
  model.logit_softcap = static_cast<float>(j.get_float("final_logit_softcapping", 0));
  const auto local = rope(w, c.head_dim, "sliding_attention"), global = rope(w, c.head_dim, "full_attention");
  for (int i = 0; i < c.layers; ++i) {
    const Weights layer = w.layer(i);
    const std::string type = layer_type(j, i);
    add_layer(model, i, "attention", attention(layer, c, type, type == "full_attention" ? global : local));
    add_layer(
        model, i, "mlp",
        std::make_unique<Mlp>(sublayer(layer, c, "pre_feedforward_layernorm", "post_feedforward_layernorm"),
                              load_swiglu(layer.at("mlp"), c.ffn, c.dim, c.activation)));
  }
  return model;
}

}  // namespace

std::vector<Family> gemma3_families() {
  return {{"gemma3",
           {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
           {"gemma3_text", "gemma3"},
           "Gemma 3, dense",
           {"local and global attention", "sliding window", "q and k norms", "norms around sublayers"},
           build,
           R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
               "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
               "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
               "rope_theta": 1000000.0, "query_pre_attn_scalar": 256, "sliding_window": 4096,
               "tie_word_embeddings": true})",
           {{"layer_types", "full_attention|sliding_attention"}, {"use_bidirectional_attention", "false"}}}};
}

}  // namespace strata
