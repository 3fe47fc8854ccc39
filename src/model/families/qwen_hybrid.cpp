// The Qwen hybrids: qwen3_next, qwen3_5, qwen3_5_moe. Gated delta nets with full attention every few layers,
// dense or MoE feed-forwards, and a multi-token-prediction head.
#include "model/families/qwen_hybrid.h"

#include <cmath>

#include "layers/gated_delta_net.h"
#include "model/families/families.h"
#include "model/rope.h"

namespace strata {
namespace qwen {

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c,
                                            std::shared_ptr<const Rope> rope, Sublayer sublayer,
                                            const AttentionExtras& extras) {
  const Weights a = w.at("self_attn");
  const bool gated = w.config().get_bool("attn_output_gate", true),
             bias = w.config().get_bool("attention_bias", false);
  const std::int64_t H = c.heads, Dh = c.head_dim, kv = std::int64_t{c.kv_heads} * Dh;
  // Each head's rows are query | gate.
  const LinearPart q = gated ? LinearPart{"q_proj", H * 2 * Dh,
                                          head_rows(H, 2 * Dh, 0, Dh) + head_rows(H, 2 * Dh, Dh, Dh), bias}
                             : LinearPart{"q_proj", H * Dh, {}, bias};
  std::vector<LinearPart> parts{
      q, {.name = "k_proj", .outputs = kv, .bias = bias}, {.name = "v_proj", .outputs = kv, .bias = bias}};
  if (extras.indexer) {
    parts.push_back({.name = "indexer.index_qk_proj",
                     .outputs = std::int64_t{extras.indexer->heads + 1} * extras.indexer->dim});
  }
  AttentionWeights weights{.sublayer = std::move(sublayer),
                           .qkv = a.linear(std::move(parts), c.dim),
                           .out = a.linear({{.name = "o_proj", .outputs = c.dim, .bias = bias}}, H * Dh),
                           .q_norm = a.norm("q_norm", Dh, c.eps, kZeroCentred).weight,
                           .k_norm = a.norm("k_norm", Dh, c.eps, kZeroCentred).weight,
                           .norm_eps = c.eps,
                           .indexer = extras.indexer,
                           .rope = std::move(rope)};
  const AttentionConfig config{.heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.head_dim,
                               .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                               .skip = extras.skip,
                               .gated = gated};
  return std::make_unique<Attention>(config, std::move(weights));
}

namespace {

// The input projections in the order q | k | v | z | b | a, from either way of packing them.
Linear delta_inputs(const Weights& a, const GatedDeltaNetConfig& g, std::int64_t dim) {
  const std::int64_t Hk = g.key_heads, Hv = g.value_heads, K = g.key_dim, V = g.value_dim, r = Hv / Hk;
  std::vector<LinearPart> parts = {{.name = "in_proj_qkv", .outputs = 2 * Hk * K + Hv * V},
                                   {.name = "in_proj_z", .outputs = Hv * V}};
  // Qwen3-Next: each key head's rows are q | k | v and z of its r value heads; and b | a of them.
  if (a.has("in_proj_qkvz.weight")) {
    const std::int64_t group = 2 * K + 2 * r * V;
    parts = {{.name = "in_proj_qkvz",
              .outputs = Hk * group,
              .rows = head_rows(Hk, group, 0, K) + head_rows(Hk, group, K, K) +
                      head_rows(Hk, group, 2 * K, r * V) + head_rows(Hk, group, 2 * K + r * V, r * V)}};
  }
  if (a.has("in_proj_ba.weight")) {
    parts.push_back({.name = "in_proj_ba",
                     .outputs = 2 * Hv,
                     .rows = head_rows(Hk, 2 * r, 0, r) + head_rows(Hk, 2 * r, r, r)});
  } else {
    parts.insert(parts.end(), {{.name = "in_proj_b", .outputs = Hv}, {.name = "in_proj_a", .outputs = Hv}});
  }
  return a.linear(std::move(parts), dim);
}

}  // namespace

std::unique_ptr<TransformerLayer> delta_net(const Weights& w, const TextConfig& c, Sublayer sublayer,
                                            Activation gate) {
  const Json& j = w.config();
  const Weights a = w.at("linear_attn");
  const GatedDeltaNetConfig g{.key_heads = j.get_int("linear_num_key_heads"),
                              .value_heads = j.get_int("linear_num_value_heads"),
                              .key_dim = j.get_int("linear_key_head_dim"),
                              .value_dim = j.get_int("linear_value_head_dim"),
                              .conv_width = j.get_int("linear_conv_kernel_dim", 4),
                              .gate = gate};
  const std::int64_t values = std::int64_t{g.value_heads} * g.value_dim,
                     channels = 2 * std::int64_t{g.key_heads} * g.key_dim + values;
  GatedDeltaNetWeights weights{
      .sublayer = std::move(sublayer),
      .in = delta_inputs(a, g, c.dim),
      .conv = a.vector("conv1d.weight", {channels, 1, g.conv_width}).reshape({channels, g.conv_width}),
      .a_log = a.vector("A_log", {g.value_heads}),
      .dt_bias = a.vector("dt_bias", {g.value_heads}),
      .norm = a.norm("norm", g.value_dim, c.eps),
      .out = a.linear({{.name = "out_proj", .outputs = c.dim}}, values)};
  return std::make_unique<GatedDeltaNet>(g, std::move(weights));
}

std::unique_ptr<TransformerLayer> moe(const Weights& w, const TextConfig& c, Sublayer sublayer) {
  const Json& j = w.config();
  const Weights m = w.at("mlp");
  const int experts = j.get_int("num_experts");
  const int shared = j.get_int("shared_expert_intermediate_size", 0);
  std::vector<LinearPart> router{{.name = "gate", .outputs = experts}};
  if (shared > 0) router.push_back({.name = "shared_expert_gate", .outputs = 1});
  MoeWeights weights{.sublayer = std::move(sublayer), .router = m.exact(std::move(router), c.dim)};
  load_experts(weights, m, experts, j.get_int("moe_intermediate_size"), c.dim);
  if (shared > 0) weights.shared = load_swiglu(m.at("shared_expert"), shared, c.dim, c.activation);
  const MoeConfig config{.experts = experts,
                         .top_k = j.get_int("num_experts_per_tok"),
                         .normalise = j.get_bool("norm_topk_prob", true),
                         .activation = c.activation};
  return std::make_unique<Moe>(config, std::move(weights));
}

bool full_attention(const Json& config, int layer) {
  const std::vector<std::string> types = layer_types(config);
  if (types.empty()) return (layer + 1) % config.get_int("full_attention_interval", 4) == 0;
  return types[static_cast<std::size_t>(layer)] != "linear_attention";
}

}  // namespace qwen

namespace {

using qwen::kZeroCentred;

Sublayer after(const Weights& w, std::string_view norm, const TextConfig& c) {
  return {.norm = w.norm(norm, c.dim, c.eps, kZeroCentred)};
}

void add_feed_forward(Model& model, const Weights& w, const TextConfig& c, int block) {
  Sublayer sublayer = after(w, "post_attention_layernorm", c);
  if (w.has("mlp.gate.weight")) return add_layer(model, block, "moe", qwen::moe(w, c, std::move(sublayer)));
  add_layer(model, block, "mlp",
            std::make_unique<Mlp>(std::move(sublayer), load_swiglu(w.at("mlp"), c.ffn, c.dim, c.activation)));
}

// The head drafts from the token before a row and the row's own token: row j's entry is that of token j, at
// position j (rotations are relative). Token 0 has no predecessor, so its entry is never seen.
std::unique_ptr<const Model> mtp_head(const Model& target, std::shared_ptr<const Linear> head,
                                      const Weights& w, const TextConfig& c,
                                      const std::shared_ptr<const Rope>& rope) {
  auto model = std::make_unique<Model>();
  model->architecture = "mtp";
  model->vocab_size = c.vocab;
  model->hidden_size = c.dim;
  model->max_context = c.max_context;
  model->embedding = target.embedding;
  model->head = std::move(head);
  model->norm = w.norm("norm", c.dim, c.eps, kZeroCentred);
  model->fusion = std::make_unique<const Fusion>(
      Fusion{.embedding_norm = w.norm("pre_fc_norm_embedding", c.dim, c.eps, kZeroCentred),
             .hidden_norm = w.norm("pre_fc_norm_hidden", c.dim, c.eps, kZeroCentred),
             .fc = w.linear({{.name = "fc", .outputs = c.dim}}, 2 * std::int64_t{c.dim})});
  for (int i = 0; i < w.config().get_int("mtp_num_hidden_layers", 1); ++i) {
    add_layer(*model, i, "attention",
              qwen::attention(w.layer(i), c, rope, after(w.layer(i), "input_layernorm", c), {.skip = 1}));
    add_feed_forward(*model, w.layer(i), c, i);
  }
  return model;
}

Model build(const Weights& w) {
  const TextConfig c(w.config());
  const auto rope = load_rope(w.config(), c.head_dim, w.ops());
  Model model;
  load_ends(model, w, c, kZeroCentred);
  for (int i = 0; i < c.layers; ++i) {
    const Weights layer = w.layer(i);
    Sublayer mixer = after(layer, "input_layernorm", c);
    if (qwen::full_attention(w.config(), i)) {
      add_layer(model, i, "attention", qwen::attention(layer, c, rope, std::move(mixer)));
    } else {
      add_layer(model, i, "gated_delta_net", qwen::delta_net(layer, c, std::move(mixer)));
    }
    add_feed_forward(model, layer, c, i);
  }
  if (w.has("mtp.fc.weight")) model.mtp = mtp_head(model, draft_head(model, w), w.at("mtp"), c, rope);
  return model;
}

}  // namespace

std::vector<Family> qwen_hybrid_families() {
  const std::string defaults = R"({"partial_rotary_factor": 0.25, "head_dim": 256})";
  const std::vector<ConfigRule> rules = {{"layer_types", "full_attention|linear_attention"},
                                         {"hidden_act", "silu|swish"},
                                         {"mtp_use_dedicated_embeddings", "false"}};
  return {
      {"qwen3_next",
       {"Qwen3NextForCausalLM"},
       {"qwen3_next"},
       "Qwen3-Next: gated delta nets and gated attention",
       {"hybrid", "MoE", "shared expert", "MTP"},
       build,
       defaults,
       rules},
      {"qwen3_5",
       {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
       {"qwen3_5_text", "qwen3_5"},
       "Qwen3.5, dense: gated delta nets and gated attention",
       {"hybrid", "MTP", "M-RoPE"},
       build,
       defaults,
       rules},
      {"qwen3_5_moe",
       {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
       {"qwen3_5_moe_text", "qwen3_5_moe"},
       "Qwen3.5, mixture of experts",
       {"hybrid", "MoE", "shared expert", "MTP", "M-RoPE"},
       build,
       defaults,
       rules},
  };
}

}  // namespace strata
