// MiniMax-M2: attention whose query and key norms span all heads, sigmoid routing with a bias that only
// chooses.
#include <cmath>

#include "model/families/blocks.h"
#include "model/families/families.h"
#include "model/rope.h"

namespace strata {
namespace {

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c,
                                            std::shared_ptr<const Rope> rope) {
  const Weights a = w.at("self_attn");
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  AttentionWeights weights{.sublayer = {.norm = w.norm("input_layernorm", c.dim, c.eps)},
                           .qkv = a.linear({{.name = "q_proj", .outputs = q},
                                            {.name = "k_proj", .outputs = kv},
                                            {.name = "v_proj", .outputs = kv}},
                                           c.dim),
                           .out = a.linear({{.name = "o_proj", .outputs = c.dim}}, q),
                           .q_row_norm = a.norm("q_norm", q, c.eps).weight,
                           .k_row_norm = a.norm("k_norm", kv, c.eps).weight,
                           .norm_eps = c.eps,
                           .rope = std::move(rope)};
  const AttentionConfig config{.heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.head_dim,
                               .scale = 1 / std::sqrt(static_cast<float>(c.head_dim))};
  return std::make_unique<Attention>(config, std::move(weights));
}

std::unique_ptr<TransformerLayer> moe(const Weights& w, const TextConfig& c) {
  const Weights m = w.at("block_sparse_moe"), e = m.at("experts");
  const int experts = w.config().get_int("num_local_experts");
  MoeWeights weights{
      .sublayer = {.norm = w.norm("post_attention_layernorm", c.dim, c.eps)},
      .router = m.exact({{.name = "gate", .outputs = experts}}, c.dim),
      .choice_bias = m.vector("e_score_correction_bias", {experts}),
      .in = e.experts(experts, {{.name = "w1", .outputs = c.ffn}, {.name = "w3", .outputs = c.ffn}},
                      "gate_up_proj", c.dim),
      .down = e.experts(experts, {{.name = "w2", .outputs = c.dim}}, "down_proj", c.ffn)};
  const MoeConfig config{.experts = experts,
                         .top_k = w.config().get_int("num_experts_per_tok"),
                         .scoring = Scoring::kSigmoid,
                         .activation = c.activation};
  return std::make_unique<Moe>(config, std::move(weights));
}

// The makers' own configuration counts rotated channels (`rotary_dim`) where the newer form gives their
// share.
std::shared_ptr<const Rope> rope(const Weights& w, const TextConfig& c) {
  const Json& config = w.config();
  if (config.get("rope_parameters").has("partial_rotary_factor") || !config.has("rotary_dim"))
    return load_rope(config, c.head_dim, w.ops());
  const double share = config.get_float("rotary_dim") / c.head_dim;
  return load_rope(
      Json::merge(Json::parse("{\"partial_rotary_factor\": " + std::to_string(share) + "}", config.origin()),
                  config),
      c.head_dim, w.ops());
}

Model build(const Weights& w) {
  const TextConfig c(w.config());
  const auto table = rope(w, c);
  Model model;
  load_ends(model, w, c);
  for (int i = 0; i < c.layers; ++i) {
    add_layer(model, i, "attention", attention(w.layer(i), c, table));
    add_layer(model, i, "moe", moe(w.layer(i), c));
  }
  return model;
}

}  // namespace

std::vector<Family> minimax_families() {
  return {{"minimax_m2",
           {"MiniMaxM2ForCausalLM"},
           {"minimax_m2"},
           "MiniMax-M2, mixture of experts",
           {"MoE", "partial RoPE", "sigmoid routing with bias"},
           build,
           "{}",
           {{"layer_types", "full_attention"},
            {"scoring_func", "sigmoid"},
            {"use_routing_bias", "true"},
            {"use_qk_norm", "true"},
            {"qk_norm_type", "per_layer"},
            {"attn_type_list", "1"},
            {"shared_intermediate_size", "0"}}}};
}

}  // namespace strata
