// Decoders over multi-head latent attention: deepseek_v3 and mistral4. Routed experts after the first dense
// layers.
#include <cmath>

#include "layers/mla.h"
#include "model/families/blocks.h"
#include "model/families/families.h"
#include "model/rope.h"

namespace strata {
namespace {

constexpr float kLatentEps = 1e-6F;  // the latents' norms have an epsilon of their own

// YaRN's attention factor also scales the scores (DeepSeek's mscale_all_dim).
float score_scale(const Json& config, int query_dim) {
  const float plain = 1 / std::sqrt(static_cast<float>(query_dim));
  const Json p = rope_parameters(config);
  const std::string kind = p.has("rope_type") ? p.get_string("rope_type") : p.get_string("type", "default");
  const double all = p.get_float("mscale_all_dim", 0), factor = p.get_float("factor", 1);
  if (kind == "default" || all == 0 || factor <= 1) return plain;
  const double mscale = 0.1 * all * std::log(factor) + 1;
  return static_cast<float>(plain * mscale * mscale);
}

std::shared_ptr<const Rope> rope(const Weights& w, int rope_dim, int latent) {
  const Json& config = w.config();
  const double part = rope_parameters(config).get_float("partial_rotary_factor",
                                                        config.get_float("partial_rotary_factor", 1));
  auto table = load_rope(config, static_cast<int>(std::lround(rope_dim / part)), w.ops());
  table->offset = latent;
  table->interleaved = config.get_bool("rope_interleave", true);
  return table;
}

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c,
                                            std::shared_ptr<const Rope> rope) {
  const Json& j = w.config();
  const Weights a = w.at("self_attn");
  const int R = j.get_int("kv_lora_rank"), Dn = j.get_int("qk_nope_head_dim"),
            Dr = j.get_int("qk_rope_head_dim"), Dv = j.get_int("v_head_dim");
  const int low = j.get_int("q_lora_rank", 0);
  const bool bias = j.get_bool("attention_bias", false);
  const std::int64_t H = c.heads, queries = H * (Dn + Dr);
  MlaWeights weights{.sublayer = {.norm = w.norm("input_layernorm", c.dim, c.eps)}, .rope = std::move(rope)};
  const LinearPart latent{.name = "kv_a_proj_with_mqa", .outputs = R + Dr, .bias = bias};
  if (low > 0) {
    weights.in = a.linear({{.name = "q_a_proj", .outputs = low, .bias = bias}, latent}, c.dim);
    weights.query_norm = a.norm("q_a_layernorm", low, kLatentEps).weight;
    weights.query_up = a.linear({{.name = "q_b_proj", .outputs = queries}}, low);
  } else {
    weights.in = a.linear({{.name = "q_proj", .outputs = queries}, latent}, c.dim);
  }
  weights.latent_norm = a.norm("kv_a_layernorm", R, kLatentEps).weight;
  // kv_b_proj expands a latent to each head's key | value: as it stands for the values, turned round for the
  // queries.
  if (a.has("k_b_proj.weight")) {  // GGUF has them apart and turned already
    weights.absorbed_key = a.experts(c.heads, {{.name = "k_b_proj", .outputs = R}}, "", Dn);
    weights.absorbed_value = a.experts(c.heads, {{.name = "v_b_proj", .outputs = Dv}}, "", R);
  } else {
    std::tie(weights.absorbed_key, weights.absorbed_value) = a.split_heads("kv_b_proj", c.heads, Dn, Dv, R);
  }
  weights.out = a.linear({{.name = "o_proj", .outputs = c.dim, .bias = bias}}, H * Dv);
  const MlaConfig config{.heads = c.heads,
                         .latent = R,
                         .nope_dim = Dn,
                         .rope_dim = Dr,
                         .value_dim = Dv,
                         .scale = score_scale(j, Dn + Dr),
                         .latent_eps = kLatentEps};
  return std::make_unique<Mla>(config, std::move(weights));
}

std::unique_ptr<TransformerLayer> moe(const Weights& w, const TextConfig& c, Scoring scoring) {
  const Json& j = w.config();
  const Weights m = w.at("mlp");
  const int experts = j.get_int(j.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts"),
            ffn = j.get_int("moe_intermediate_size");
  MoeWeights weights{.sublayer = {.norm = w.norm("post_attention_layernorm", c.dim, c.eps)},
                     .router = m.exact({{.name = "gate", .outputs = experts}}, c.dim)};
  if (scoring == Scoring::kSigmoid) weights.choice_bias = m.vector("gate.e_score_correction_bias", {experts});
  load_experts(weights, m, experts, ffn, c.dim);
  if (const int shared = j.get_int("n_shared_experts", 0); shared > 0) {
    weights.shared = load_swiglu(m.at("shared_experts"), std::int64_t{shared} * ffn, c.dim, c.activation);
  }
  const MoeConfig config{.experts = experts,
                         .top_k = j.get_int("num_experts_per_tok"),
                         .scoring = scoring,
                         .groups = j.get_int("n_group", 1),
                         .top_groups = j.get_int("topk_group", 1),
                         .normalise = j.get_bool("norm_topk_prob", true),
                         .scale = static_cast<float>(j.get_float("routed_scaling_factor", 1)),
                         .activation = c.activation};
  return std::make_unique<Moe>(config, std::move(weights));
}

Model build(const Weights& w, Scoring scoring) {
  const Json& j = w.config();
  const TextConfig c(j);
  const auto table = rope(w, j.get_int("qk_rope_head_dim"), j.get_int("kv_lora_rank"));
  Model model;
  load_ends(model, w, c);
  for (int i = 0; i < c.layers; ++i) {
    const Weights layer = w.layer(i);
    add_layer(model, i, "mla", attention(layer, c, table));
    if (i >= j.get_int("first_k_dense_replace", 0) && i % j.get_int("moe_layer_freq", 1) == 0) {
      add_layer(model, i, "moe", moe(layer, c, scoring));
    } else {
      add_layer(model, i, "mlp",
                std::make_unique<Mlp>(Sublayer{.norm = layer.norm("post_attention_layernorm", c.dim, c.eps)},
                                      load_swiglu(layer.at("mlp"), c.ffn, c.dim, c.activation)));
    }
  }
  // Published checkpoints carry drafting layers behind the last one.
  for (int i = 0; i < j.get_int("num_nextn_predict_layers", 0); ++i) {
    if (w.layer(c.layers + i).has("input_layernorm.weight"))
      w.skip("layers." + std::to_string(c.layers + i) + ".");
  }
  w.skip("mtp.");
  return model;
}

Model build_deepseek(const Weights& w) { return build(w, Scoring::kSigmoid); }
Model build_mistral4(const Weights& w) { return build(w, Scoring::kSoftmax); }

}  // namespace

std::vector<Family> mla_families() {
  return {
      {"deepseek_v3",
       {"DeepseekV3ForCausalLM"},
       {"deepseek_v3"},
       "DeepSeek-V3 and R1 (drafting layers are left out)",
       {"MLA", "MoE", "shared expert", "group-limited sigmoid routing"},
       build_deepseek,
       R"({"n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "first_k_dense_replace": 3,
           "n_shared_experts": 1, "q_lora_rank": 1536})",
       {{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}},
      {"mistral4",
       {"Mistral4ForCausalLM"},
       {"mistral4"},
       "Mistral 4",
       {"MLA", "MoE", "shared expert", "YaRN"},
       build_mistral4,
       "{}",
       {{"scoring_func", "softmax"}}},
  };
}

}  // namespace strata
