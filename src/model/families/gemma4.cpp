// Gemma 4: local and global attention with head sizes of their own, values normalised, a scale at the end of
// each block, and optionally experts beside the dense feed-forward.
#include <cmath>

#include "base/error.h"
#include "layers/moe_beside_mlp.h"
#include "layers/stream_scale.h"
#include "model/families/blocks.h"
#include "model/families/families.h"
#include "model/rope.h"

namespace strata {
namespace {

// Configuration of one block's attention.
struct Block {
  bool global = false;
  int head_dim = 0, kv_heads = 0;
};

std::vector<Block> blocks(const Json& config, const TextConfig& c) {
  const std::vector<std::string> types = layer_types(config);
  std::vector<Block> out;
  for (int i = 0; i < c.layers; ++i) {
    Block b{
        .global = types.empty() ? (i + 1) % 6 == 0 : types[static_cast<std::size_t>(i)] == "full_attention",
        .head_dim = c.head_dim,
        .kv_heads = c.kv_heads};
    if (i + 1 == c.layers) b.global = true;
    if (config.has("per_layer_config")) {
      const Json own = config.at("per_layer_config").get(std::to_string(i));
      if (own.is_object()) {
        b.head_dim = own.get_int("head_dim", b.head_dim);
        b.kv_heads = own.get_int("num_key_value_heads", b.kv_heads);
      }
    } else if (b.global) {
      b.head_dim = config.get_int("global_head_dim", 512);
      if (config.get_bool("attention_k_eq_v", false))
        b.kv_heads = config.get_int("num_global_key_value_heads", b.kv_heads);
    }
    out.push_back(b);
  }
  return out;
}

std::shared_ptr<const Rope> rope(const Weights& w, const Block& block) {
  const std::string type = block.global ? "full_attention" : "sliding_attention";
  if (w.config().get("rope_parameters").has(type))
    return load_rope(w.config(), block.head_dim, w.ops(), type);
  const char* usual =
      block.global ? R"({"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000})"
                   : R"({"rope_theta": 10000})";
  return load_rope(Json::parse(std::string("{\"rope_parameters\": ") + usual + "}", w.config().origin()),
                   block.head_dim, w.ops());
}

Sublayer sublayer(const Weights& w, const TextConfig& c, std::string_view before, std::string_view after) {
  return {.norm = w.norm(before, c.dim, c.eps), .post = w.norm(after, c.dim, c.eps)};
}

Tensor ones(Ops& ops, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n), 1.0F);
  return ops.load_vector(Tensor(values.data(), DType::kF32, {n}));
}

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c, const Block& block,
                                            std::shared_ptr<const Rope> rope) {
  const Json& j = w.config();
  const Weights a = w.at("self_attn");
  const std::int64_t Dh = block.head_dim, q = c.heads * Dh, kv = block.kv_heads * Dh;
  const bool bias = j.get_bool("attention_bias", false);
  std::vector<LinearPart> parts{{.name = "q_proj", .outputs = q, .bias = bias},
                                {.name = "k_proj", .outputs = kv, .bias = bias}};
  if (block.global && j.get_bool("attention_k_eq_v", false)) {
    parts[1].rows = {{0, kv}, {0, kv}};  // the values are the keys as projected
  } else {
    parts.push_back({.name = "v_proj", .outputs = kv, .bias = bias});
  }
  AttentionWeights weights{.sublayer = sublayer(w, c, "input_layernorm", "post_attention_layernorm"),
                           .qkv = a.linear(std::move(parts), c.dim),
                           .out = a.linear({{.name = "o_proj", .outputs = c.dim, .bias = bias}}, q),
                           .q_norm = a.norm("q_norm", Dh, c.eps).weight,
                           .k_norm = a.norm("k_norm", Dh, c.eps).weight,
                           .v_norm = ones(w.ops(), Dh),
                           .norm_eps = c.eps,
                           .rope = std::move(rope)};
  const AttentionConfig config{.heads = c.heads,
                               .kv_heads = block.kv_heads,
                               .head_dim = block.head_dim,
                               .scale = 1,
                               .window = block.global ? 0 : j.get_int("sliding_window")};
  return std::make_unique<Attention>(config, std::move(weights));
}

std::unique_ptr<TransformerLayer> feed_forward(const Weights& w, const TextConfig& c) {
  const Json& j = w.config();
  Sublayer around = sublayer(w, c, "pre_feedforward_layernorm", "post_feedforward_layernorm");
  Ffn dense = load_swiglu(w.at("mlp"), c.ffn, c.dim, c.activation);
  if (!j.get_bool("enable_moe_block", false))
    return std::make_unique<Mlp>(std::move(around), std::move(dense));
  const int experts = j.get_int("num_experts");
  MoeBesideMlpWeights weights{
      .sublayer = std::move(around),
      .dense = std::move(dense),
      .dense_post = w.norm("post_feedforward_layernorm_1", c.dim, c.eps),
      .router_norm = {w.vector("router.scale", {c.dim}, 0, 1 / std::sqrt(static_cast<float>(c.dim))), c.eps},
      .experts_norm = w.norm("pre_feedforward_layernorm_2", c.dim, c.eps),
      .experts_post = w.norm("post_feedforward_layernorm_2", c.dim, c.eps),
      .config = {.experts = experts, .top_k = j.get_int("top_k_experts"), .activation = c.activation}};
  weights.experts.router = w.exact({{.name = "router.proj", .outputs = experts}}, c.dim);
  weights.experts.expert_scale = w.vector("router.per_expert_scale", {experts});
  load_experts(weights.experts, w, experts, j.get_int("moe_intermediate_size"), c.dim);
  return std::make_unique<MoeBesideMlp>(std::move(weights));
}

Model build(const Weights& w) {
  const Json& j = w.config();
  TextConfig c(j);
  c.activation = activation_of(j, "hidden_activation");
  Model model;
  load_ends(model, w, c);
  model.embedding_scale = std::sqrt(static_cast<float>(c.dim));
  model.logit_softcap = static_cast<float>(j.get_float("final_logit_softcapping", 0));
  const std::vector<Block> all = blocks(j, c);
  std::shared_ptr<const Rope> ropes[2];  // local, global
  for (int i = 0; i < c.layers; ++i) {
    const Weights layer = w.layer(i);
    const Block& block = all[static_cast<std::size_t>(i)];
    auto& table = ropes[block.global ? 1 : 0];
    if (table == nullptr) table = rope(w, block);
    add_layer(model, i, "attention", attention(layer, c, block, table));
    add_layer(model, i, j.get_bool("enable_moe_block", false) ? "moe" : "mlp", feed_forward(layer, c));
    if (const float scalar = layer.has("layer_scalar") ? layer.number("layer_scalar") : 1; scalar != 1)
      add_layer(model, i, "scale", std::make_unique<StreamScale>(scalar));
  }
  return model;
}

}  // namespace

std::vector<Family> gemma4_families() {
  return {{"gemma4",
           {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"},
           {"gemma4_text", "gemma4"},
           "Gemma 4, dense and mixture of experts",
           {"local and global attention", "head sizes per layer", "MoE beside a dense feed-forward",
            "norms around sublayers"},
           build,
           R"({"hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "tie_word_embeddings": true})",
           {{"layer_types", "full_attention|sliding_attention"},
            {"hidden_size_per_layer_input", "0"},
            {"num_kv_shared_layers", "0"},
            {"use_bidirectional_attention", "false|vision"}}}};
}

}  // namespace strata
