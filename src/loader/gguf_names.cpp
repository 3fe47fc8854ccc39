// The table follows llama.cpp's converter and loader of these architectures (conversion/qwen.py, conversion/llama.py,
// src/llama-arch.cpp), whose files are the format's de facto definition.
#include "loader/gguf_names.h"

#include "base/error.h"

namespace strata {
namespace {

using Kind = GgufLayout;

struct Rule {
  std::string_view file, published;
  Kind kind = Kind::kPlain;
};

constexpr std::array kAttention = {
    Rule{"attn_norm.weight", "input_layernorm.weight", Kind::kNorm},
    Rule{"attn_q.weight", "self_attn.q_proj.weight", Kind::kQuery},
    Rule{"attn_q.bias", "self_attn.q_proj.bias", Kind::kQuery},
    Rule{"attn_k.weight", "self_attn.k_proj.weight", Kind::kKey},
    Rule{"attn_k.bias", "self_attn.k_proj.bias", Kind::kKey},
    Rule{"attn_v.weight", "self_attn.v_proj.weight"},
    Rule{"attn_v.bias", "self_attn.v_proj.bias"},
    Rule{"attn_output.weight", "self_attn.o_proj.weight"},
    Rule{"attn_output.bias", "self_attn.o_proj.bias"},
    Rule{"attn_q_norm.weight", "self_attn.q_norm.weight", Kind::kNorm},
    Rule{"attn_k_norm.weight", "self_attn.k_norm.weight", Kind::kNorm},
};
constexpr std::array kDense = {
    Rule{"ffn_gate.weight", "mlp.gate_proj.weight"}, Rule{"ffn_gate.bias", "mlp.gate_proj.bias"},
    Rule{"ffn_up.weight", "mlp.up_proj.weight"},     Rule{"ffn_up.bias", "mlp.up_proj.bias"},
    Rule{"ffn_down.weight", "mlp.down_proj.weight"}, Rule{"ffn_down.bias", "mlp.down_proj.bias"},
};
constexpr std::array kExperts = {
    Rule{"ffn_gate_inp.weight", "mlp.gate.weight"},
    Rule{"ffn_gate_exps.weight", "mlp.experts.gate_proj.weight"},
    Rule{"ffn_up_exps.weight", "mlp.experts.up_proj.weight"},
    Rule{"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj.weight"},
    Rule{"ffn_down_exps.weight", "mlp.experts.down_proj.weight"},
};
constexpr std::array kSharedExpert = {
    Rule{"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", Kind::kRow},
    Rule{"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    Rule{"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    Rule{"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
};
constexpr std::array kDeltaNet = {
    Rule{"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", Kind::kValueRows},
    Rule{"attn_gate.weight", "linear_attn.in_proj_z.weight", Kind::kGateRows},
    Rule{"ssm_in.weight", "linear_attn.in_proj_qkvz.weight"},
    Rule{"ssm_ba.weight", "linear_attn.in_proj_ba.weight"},
    Rule{"ssm_beta.weight", "linear_attn.in_proj_b.weight", Kind::kHeadRows},
    Rule{"ssm_alpha.weight", "linear_attn.in_proj_a.weight", Kind::kHeadRows},
    Rule{"ssm_conv1d.weight", "linear_attn.conv1d.weight", Kind::kConv},
    Rule{"ssm_dt.bias", "linear_attn.dt_bias", Kind::kHeadRows},
    Rule{"ssm_a", "linear_attn.A_log", Kind::kDecay},
    Rule{"ssm_norm.weight", "linear_attn.norm.weight"},
    Rule{"ssm_out.weight", "linear_attn.out_proj.weight", Kind::kValueColumns},
};
// Of the first multi-token-prediction layer; in the published form they stand beside the layers.
constexpr std::array kMtp = {
    Rule{"nextn.eh_proj.weight", "mtp.fc.weight"},
    Rule{"nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", Kind::kNorm},
    Rule{"nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", Kind::kNorm},
    Rule{"nextn.shared_head_norm.weight", "mtp.norm.weight", Kind::kNorm},
};

// llama.cpp's llama rotates channels (2i, 2i + 1), the published form (i, i + d / 2).
std::vector<std::int64_t> paired_rows(std::int64_t heads, std::int64_t head_dim) {
  std::vector<std::int64_t> rows;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < head_dim; ++i) rows.push_back(h * head_dim + i % 2 * (head_dim / 2) + i / 2);
  }
  return rows;
}

// Value head j of every key head in turn, where the published form has all value heads of a key head together. Each head is
// `each` rows (or columns), after `before` that stay.
std::vector<std::int64_t> value_heads(const GgufModel& m, std::int64_t each, std::int64_t before = 0) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < before; ++i) order.push_back(i);
  const std::int64_t group = m.value_heads / m.key_heads;
  for (std::int64_t i = 0; i < m.value_heads; ++i) {
    const std::int64_t published = i % m.key_heads * group + i / m.key_heads;
    for (std::int64_t r = 0; r < each; ++r) order.push_back(before + published * each + r);
  }
  return order;
}

}  // namespace

TensorLayout layout_of(GgufLayout kind, const GgufModel& m) {
  TensorLayout l;
  const bool reordered = (m.arch == GgufArch::kQwen35 || m.arch == GgufArch::kQwen35Moe) && m.key_heads != m.value_heads;
  const std::int64_t keys = 2 * m.key_heads * m.key_dim;
  switch (kind) {
    case Kind::kPlain: break;
    case Kind::kNorm: l.math = has_shifted_norms(m.arch) ? TensorLayout::Math::kOnePlus : TensorLayout::Math::kNone; break;
    case Kind::kQuery:
    case Kind::kKey:
      if (m.arch == GgufArch::kLlama) l.rows = paired_rows(kind == Kind::kQuery ? m.heads : m.kv_heads, m.head_dim);
      break;
    case Kind::kRow: l.form = TensorLayout::Form::kRow; break;
    case Kind::kDecay: l.math = TensorLayout::Math::kMinusExp; [[fallthrough]];
    case Kind::kHeadRows:
      if (reordered) l.rows = value_heads(m, 1);
      break;
    case Kind::kGateRows:
      if (reordered) l.rows = value_heads(m, m.value_dim);
      break;
    case Kind::kConv: l.form = TensorLayout::Form::kConv; [[fallthrough]];
    case Kind::kValueRows:
      if (reordered) l.rows = value_heads(m, m.value_dim, keys);
      break;
    case Kind::kValueColumns:
      if (reordered) {
        l.runs = value_heads(m, 1);
        l.run = m.value_dim;
      }
      break;
  }
  return l;
}

GgufModel::GgufModel(GgufArch a, const Json& config)
    : arch(a),
      layers(config.get_int("num_hidden_layers")),
      heads(config.get_int("num_attention_heads")),
      kv_heads(config.get_int("num_key_value_heads", static_cast<int>(heads))) {
  const auto require = [&](bool fine, std::string_view what) {
    if (!fine) throw Error("{}: {} of this configuration make no sense", config.origin(), what);
  };
  constexpr std::int64_t kMany = 1 << 20;  // of layers, or of channels in a layer's heads: beyond any model
  const auto sane = [](std::int64_t n, std::int64_t each) { return n > 0 && each > 0 && n <= kMany && each <= kMany / n; };
  require(sane(layers, 1), "the layers");
  require(heads > 0, "the heads");
  head_dim = config.get_int("head_dim", static_cast<int>(config.get_int("hidden_size") / heads));
  require(head_dim % 2 == 0 && sane(heads, head_dim) && sane(kv_heads, head_dim), "the heads");
  if (!is_hybrid(arch)) return;
  mtp_layers = config.get_int("mtp_num_hidden_layers", 0);
  key_heads = config.get_int("linear_num_key_heads");
  value_heads = config.get_int("linear_num_value_heads");
  key_dim = config.get_int("linear_key_head_dim");
  value_dim = config.get_int("linear_value_head_dim");
  require(mtp_layers >= 0 && mtp_layers <= kMany, "the prediction layers");
  require(sane(key_heads, key_dim) && sane(value_heads, value_dim) && value_heads % key_heads == 0, "the delta nets' heads");
}

std::vector<GgufTensorName> gguf_names(const GgufModel& m) {
  std::vector<GgufTensorName> names;
  const auto add = [&](const std::string& file_prefix, const std::string& prefix, const Rule& rule) {
    names.push_back({file_prefix + std::string(rule.file), prefix + std::string(rule.published), rule.kind});
  };
  add("", "model.", {"token_embd.weight", "embed_tokens.weight"});
  add("", "model.", {"output_norm.weight", "norm.weight", Kind::kNorm});
  add("", "", {"output.weight", "lm_head.weight"});
  // Norms after the one before attention: before the feed-forward; gemma3 has one behind each sublayer too.
  std::vector<Rule> norms = {{is_hybrid(m.arch) ? "post_attention_norm.weight" : "ffn_norm.weight", "post_attention_layernorm.weight", Kind::kNorm}};
  if (m.arch == GgufArch::kGemma3) {
    norms = {{"post_attention_norm.weight", "post_attention_layernorm.weight", Kind::kNorm},
             {"ffn_norm.weight", "pre_feedforward_layernorm.weight", Kind::kNorm},
             {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", Kind::kNorm}};
  }
  for (std::int64_t i = 0; i < m.layers + m.mtp_layers; ++i) {
    const std::string file = fmt::format("blk.{}.", i);
    const std::string published = i < m.layers ? fmt::format("model.layers.{}.", i) : fmt::format("mtp.layers.{}.", i - m.layers);
    const auto add_all = [&](const auto& rules) {
      for (const Rule& rule : rules) add(file, published, rule);
    };
    add_all(kAttention);
    add_all(norms);
    add_all(kDense);
    if (is_moe(m.arch)) add_all(kExperts);
    if (!is_hybrid(m.arch)) continue;
    add_all(kDeltaNet);
    add_all(kSharedExpert);
    if (i != m.layers) continue;
    for (const Rule& rule : kMtp) add(file, "", rule);
  }
  return names;
}

}  // namespace strata
