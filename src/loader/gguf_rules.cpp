// Names of tensors in GGUF files beside the published ones, architecture by architecture. The tables follow llama.cpp's
// converter and loader (conversion/*.py, gguf-py/gguf/tensor_mapping.py, src/models/*.cpp), whose files are the format's de
// facto definition.
#include <span>

#include "base/error.h"
#include "loader/gguf_names.h"

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
constexpr std::array kGptOss = {
    Rule{"post_attention_norm.weight", "post_attention_layernorm.weight"},
    Rule{"attn_sinks.weight", "self_attn.sinks"},
    Rule{"ffn_gate_inp.weight", "mlp.router.weight"},
    Rule{"ffn_gate_inp.bias", "mlp.router.bias"},
    Rule{"ffn_gate_exps.weight", "mlp.experts.gate_proj.weight"},
    Rule{"ffn_gate_exps.bias", "mlp.experts.gate_proj.bias"},
    Rule{"ffn_up_exps.weight", "mlp.experts.up_proj.weight"},
    Rule{"ffn_up_exps.bias", "mlp.experts.up_proj.bias"},
    Rule{"ffn_down_exps.weight", "mlp.experts.down_proj.weight"},
    Rule{"ffn_down_exps.bias", "mlp.experts.down_proj.bias"},
};
constexpr std::array kMiniMax = {
    Rule{"ffn_norm.weight", "post_attention_layernorm.weight"},
    Rule{"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
    Rule{"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
    Rule{"ffn_gate_exps.weight", "block_sparse_moe.experts.w1.weight"},
    Rule{"ffn_up_exps.weight", "block_sparse_moe.experts.w3.weight"},
    Rule{"ffn_down_exps.weight", "block_sparse_moe.experts.w2.weight"},
};
// kv_b_proj comes apart: each head's keys turned round, its values as they are. Old files have it whole.
constexpr std::array kLatent = {
    Rule{"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    Rule{"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    Rule{"attn_q_b.weight", "self_attn.q_b_proj.weight"},
    Rule{"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    Rule{"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    Rule{"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    Rule{"attn_k_b.weight", "self_attn.k_b_proj.weight"},
    Rule{"attn_v_b.weight", "self_attn.v_b_proj.weight"},
    Rule{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    Rule{"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    Rule{"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    Rule{"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
};
constexpr std::array kGemma4 = {
    Rule{"layer_output_scale.weight", "layer_scalar"},
    Rule{"ffn_gate_inp.weight", "router.proj.weight"},
    Rule{"ffn_gate_inp.scale", "router.scale"},
    Rule{"ffn_down_exps.scale", "router.per_expert_scale"},
    Rule{"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
    Rule{"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
    Rule{"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
    Rule{"ffn_gate_exps.weight", "experts.gate_proj.weight"},
    Rule{"ffn_up_exps.weight", "experts.up_proj.weight"},
    Rule{"ffn_gate_up_exps.weight", "experts.gate_up_proj.weight"},
    Rule{"ffn_down_exps.weight", "experts.down_proj.weight"},
};
// Under "mixer." in one family, "mamba." in the other.
constexpr std::array kMamba = {
    Rule{"ssm_in.weight", "in_proj.weight"},
    Rule{"ssm_conv1d.weight", "conv1d.weight", Kind::kConv},
    Rule{"ssm_conv1d.bias", "conv1d.bias"},
    Rule{"ssm_dt.bias", "dt_bias"},
    Rule{"ssm_a", "A_log", Kind::kDecayColumn},
    Rule{"ssm_d", "D", Kind::kColumn},
    Rule{"ssm_norm.weight", "norm.weight", Kind::kGroups},
    Rule{"ssm_out.weight", "out_proj.weight"},
};
constexpr std::array kNemotron = {
    Rule{"attn_q.weight", "mixer.q_proj.weight"},
    Rule{"attn_q.bias", "mixer.q_proj.bias"},
    Rule{"attn_k.weight", "mixer.k_proj.weight"},
    Rule{"attn_k.bias", "mixer.k_proj.bias"},
    Rule{"attn_v.weight", "mixer.v_proj.weight"},
    Rule{"attn_v.bias", "mixer.v_proj.bias"},
    Rule{"attn_output.weight", "mixer.o_proj.weight"},
    Rule{"attn_output.bias", "mixer.o_proj.bias"},
    Rule{"ffn_up.weight", "mixer.up_proj.weight"},
    Rule{"ffn_up.bias", "mixer.up_proj.bias"},
    Rule{"ffn_down.weight", "mixer.down_proj.weight"},
    Rule{"ffn_down.bias", "mixer.down_proj.bias"},
    Rule{"ffn_gate_inp.weight", "mixer.gate.weight"},
    Rule{"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
    Rule{"ffn_up_exps.weight", "mixer.experts.up_proj.weight"},
    Rule{"ffn_down_exps.weight", "mixer.experts.down_proj.weight"},
    Rule{"ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight"},
    Rule{"ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight"},
    Rule{"ffn_latent_down.weight", "mixer.fc1_latent_proj.weight"},
    Rule{"ffn_latent_up.weight", "mixer.fc2_latent_proj.weight"},
};
constexpr std::array kGranite = {
    Rule{"ffn_norm.weight", "post_attention_layernorm.weight"},
    Rule{"ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight"},
    Rule{"ffn_gate_exps.weight", "block_sparse_moe.gate_proj.weight"},
    Rule{"ffn_up_exps.weight", "block_sparse_moe.up_proj.weight"},
    Rule{"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"},
};
// The feed-forward that every token takes: called shared where there are experts beside it.
constexpr std::array kGraniteShared = {
    Rule{"ffn_gate_shexp.weight", "shared_mlp.gate_proj.weight"},
    Rule{"ffn_up_shexp.weight", "shared_mlp.up_proj.weight"},
    Rule{"ffn_down_shexp.weight", "shared_mlp.output_linear.weight"},
};
constexpr std::array kGraniteDense = {
    Rule{"ffn_gate.weight", "shared_mlp.gate_proj.weight"},
    Rule{"ffn_up.weight", "shared_mlp.up_proj.weight"},
    Rule{"ffn_down.weight", "shared_mlp.output_linear.weight"},
};
// Of the first multi-token-prediction layer; in the published form they stand beside the layers.
constexpr std::array kMtp = {
    Rule{"nextn.eh_proj.weight", "mtp.fc.weight"},
    Rule{"nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", Kind::kNorm},
    Rule{"nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", Kind::kNorm},
    Rule{"nextn.shared_head_norm.weight", "mtp.norm.weight", Kind::kNorm},
};
// Norms after the one before attention: before the feed-forward; Gemma has one behind each sublayer too.
constexpr std::array kFfnNorm = {Rule{"ffn_norm.weight", "post_attention_layernorm.weight", Kind::kNorm}};
constexpr std::array kPostNorm = {Rule{"post_attention_norm.weight", "post_attention_layernorm.weight", Kind::kNorm}};
constexpr std::array kGemmaNorms = {
    Rule{"post_attention_norm.weight", "post_attention_layernorm.weight", Kind::kNorm},
    Rule{"ffn_norm.weight", "pre_feedforward_layernorm.weight", Kind::kNorm},
    Rule{"post_ffw_norm.weight", "post_feedforward_layernorm.weight", Kind::kNorm},
};

// What a table's published names begin with, behind the block's own prefix.
struct Table {
  std::span<const Rule> rules;
  std::string_view prefix = {};
};

std::vector<Table> tables_of(const GgufModel& m) {
  switch (m.arch) {
    case GgufArch::kLlama:
    case GgufArch::kSmolLm3:
    case GgufArch::kQwen2:
    case GgufArch::kQwen3: return {{kAttention}, {kFfnNorm}, {kDense}};
    case GgufArch::kQwen3Moe: return {{kAttention}, {kFfnNorm}, {kDense}, {kExperts}};
    case GgufArch::kGemma3: return {{kAttention}, {kGemmaNorms}, {kDense}};
    case GgufArch::kGemma4: return {{kAttention}, {kGemmaNorms}, {kDense}, {kGemma4}};
    case GgufArch::kGptOss: return {{kAttention}, {kGptOss}};
    case GgufArch::kMiniMaxM2: return {{kAttention}, {kMiniMax}};
    case GgufArch::kDeepSeek2:
    case GgufArch::kMistral4: return {{kAttention}, {kLatent}, {kFfnNorm}, {kDense}, {kExperts}};
    case GgufArch::kNemotronH:
    case GgufArch::kNemotronHMoe: return {{kMamba, "mixer."}, {kNemotron}};
    case GgufArch::kGraniteHybrid: return {{kAttention}, {kMamba, "mamba."}, {kGranite}, {m.experts > 0 ? std::span<const Rule>(kGraniteShared) : kGraniteDense}};
    case GgufArch::kQwen35: return {{kAttention}, {kPostNorm}, {kDense}, {kDeltaNet}};
    case GgufArch::kQwen3Next:
    case GgufArch::kQwen35Moe: return {{kAttention}, {kPostNorm}, {kDense}, {kExperts}, {kDeltaNet}, {kSharedExpert}};
  }
  return {};
}

}  // namespace

std::vector<GgufTensorName> gguf_names(const GgufModel& m) {
  std::vector<GgufTensorName> names;
  const auto add = [&](const std::string& file_prefix, const std::string& prefix, const Rule& rule) {
    names.push_back({file_prefix + std::string(rule.file), prefix + std::string(rule.published), rule.kind});
  };
  const bool nemotron = is_nemotron(m.arch);
  const std::string body = nemotron ? "backbone." : "model.";
  add("", body, {"token_embd.weight", nemotron ? "embeddings.weight" : "embed_tokens.weight"});
  add("", body, {"output_norm.weight", nemotron ? "norm_f.weight" : "norm.weight", Kind::kNorm});
  add("", "", {"output.weight", "lm_head.weight"});
  const std::vector<Table> tables = tables_of(m);
  for (std::int64_t i = 0; i < m.layers + m.mtp_layers; ++i) {
    const std::string file = fmt::format("blk.{}.", i);
    const std::string published = i < m.layers ? fmt::format("{}layers.{}.", body, i) : fmt::format("mtp.layers.{}.", i - m.layers);
    if (nemotron) add(file, published, {"attn_norm.weight", "norm.weight"});
    for (const Table& table : tables) {
      for (const Rule& rule : table.rules) add(file, published + std::string(table.prefix), rule);
    }
    if (i != m.layers) continue;
    for (const Rule& rule : kMtp) add(file, "", rule);
  }
  return names;
}

}  // namespace strata
