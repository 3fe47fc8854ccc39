// What GGUF files say of architectures beyond sizes, in the published form. The meaning of keys, and of their absence, is
// that of llama.cpp's loaders (src/models/*.cpp).
#include <algorithm>
#include <cmath>

#include "loader/gguf_config.h"
#include "loader/gguf_keys.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr std::int64_t kSoftmax = 1, kSigmoid = 2;  // expert_gating_func

void require_gating(const GgufKeys& k, std::int64_t wanted, std::int64_t otherwise) {
  const std::int64_t found = k.get_int("expert_gating_func", otherwise);
  if (found != wanted) throw Error("{}: {} {} is not supported", k.origin(), k.key("expert_gating_func"), found);
}

// Qwen's experts, also beside gated delta nets.
void experts(const GgufKeys& k, json& out) {
  out["num_experts"] = k.get_int("expert_count");
  out["num_experts_per_tok"] = k.get_int("expert_used_count");
  out["moe_intermediate_size"] = k.get_int("expert_feed_forward_length");
  out["norm_topk_prob"] = true;
  if (k.get_int("expert_gating_func", kSoftmax) > kSoftmax) require_gating(k, kSoftmax, kSoftmax);
  if (!has_delta_nets(k.arch())) return;
  const bool own = k.has("expert_shared_feed_forward_length");
  out["shared_expert_intermediate_size"] = k.get_int(own ? "expert_shared_feed_forward_length" : "feed_forward_length");
}

void delta_nets(const GgufKeys& k, json& out) {
  out["linear_num_key_heads"] = k.get_int("ssm.group_count");
  out["linear_num_value_heads"] = k.get_int("ssm.time_step_rank");
  out["linear_key_head_dim"] = k.get_int("ssm.state_size");
  out["linear_conv_kernel_dim"] = k.get_int("ssm.conv_kernel");
  const std::int64_t heads = out["linear_num_value_heads"], inner = k.get_int("ssm.inner_size");
  if (heads <= 0 || inner % heads != 0) throw Error("{}: {} channels of {} value heads", k.origin(), inner, heads);
  out["linear_value_head_dim"] = inner / heads;
  out["attn_output_gate"] = true;
  out["mtp_num_hidden_layers"] = k.get_int("nextn_predict_layers", 0);
  const std::int64_t layers = out["num_hidden_layers"];
  const std::int64_t interval = k.get_int("full_attention_interval", 4);
  if (interval <= 0) throw Error("{}: every {}th of {} layers attends", k.origin(), interval, layers);
  const GgufInts recurrent = k.has("attention.recurrent_layers") ? k.metadata().get_ints(k.key("attention.recurrent_layers")) : GgufInts{};
  if (!recurrent.empty() && static_cast<std::int64_t>(recurrent.size()) < layers) {
    throw Error("{}: {} names {} layers of {}", k.origin(), k.key("attention.recurrent_layers"), recurrent.size(), layers);
  }
  json types = json::array();
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool is_recurrent = recurrent.empty() ? (i + 1) % interval != 0 : recurrent[static_cast<std::size_t>(i)] != 0;
    types.push_back(is_recurrent ? "linear_attention" : "full_attention");
  }
  out["layer_types"] = types;
}

// Local and global layers. The list that says which is which may be missing, as the first files did not write it: then every
// `period`th is global, the last of its period or the first.
void local_layers(const GgufKeys& k, json& out, std::int64_t usual_period) {
  const std::int64_t layers = out["num_hidden_layers"];
  const std::int64_t window = k.get_int("attention.sliding_window", 0);
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const bool listed = k.is_list(kPattern);
  const GgufInts list = listed ? k.metadata().get_ints(k.key(kPattern)) : GgufInts{};
  const std::int64_t period = listed ? 1 : k.get_int(kPattern, usual_period);
  if (window < 0 || period <= 0 || (listed && static_cast<std::int64_t>(list.size()) < layers)) {
    throw Error("{}: {} does not fit {} layers with a window of {}", k.origin(), k.key(kPattern), layers, window);
  }
  json types = json::array();
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool local = window > 0 && (listed ? list[static_cast<std::size_t>(i)] != 0 : (i + 1) % period != 0);
    types.push_back(local ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = types;
  if (window > 0) out["sliding_window"] = window;
}

json local_rope(const GgufKeys& k) {
  return {{"rope_type", "default"}, {"rope_theta", k.get_float("rope.freq_base_swa", 10000.0)}};
}

void gemma3(const GgufKeys& k, json& out) {
  const std::int64_t layers = out["num_hidden_layers"], heads = out["num_attention_heads"], dim = out["hidden_size"];
  out["hidden_activation"] = "gelu_pytorch_tanh";
  // llama.cpp's rule: the largest one divides by its width per head, the others by the head's channels.
  constexpr std::int64_t kLargest = 62;  // layers
  out["query_pre_attn_scalar"] = layers == kLargest ? dim / heads : out["head_dim"].get<std::int64_t>();
  if (k.has("final_logit_softcapping")) out["final_logit_softcapping"] = k.get_float("final_logit_softcapping");
  local_layers(k, out, 6);
  const json global = out["rope_parameters"];
  out["rope_parameters"] = {{"full_attention", global}, {"sliding_attention", local_rope(k)}};
}

// The channels of a global head that stand still have an enormous divisor in rope_freqs, the others 1.
double turning_part(const GgufKeys& k) {
  const std::vector<float> factors = gguf_rope_factors_of(k);
  if (factors.empty()) throw Error("{}: tensor {} is missing", k.origin(), kGgufRopeFactors);
  constexpr float kStill = 1e9F;
  const auto still = std::find_if(factors.begin(), factors.end(), [](float f) { return f != 1; });
  if (still == factors.begin() || !std::all_of(still, factors.end(), [](float f) { return f > kStill; })) {
    throw Error("{}: tensor {} is not ones and then divisors above {}", k.origin(), kGgufRopeFactors, kStill);
  }
  return static_cast<double>(still - factors.begin()) / static_cast<double>(factors.size());
}

void gemma4(const GgufKeys& k, json& out) {
  const std::int64_t layers = out["num_hidden_layers"], dim = k.get_int("attention.key_length_swa");
  out["hidden_activation"] = "gelu_pytorch_tanh";
  out["final_logit_softcapping"] = k.get_float("final_logit_softcapping", 30.0);
  out["hidden_size_per_layer_input"] = k.get_int("embedding_length_per_layer_input", 0);
  out["num_kv_shared_layers"] = k.get_int("attention.shared_kv_layers", 0);
  local_layers(k, out, 6);
  out["global_head_dim"] = k.get_int("attention.key_length");
  out["head_dim"] = dim;
  const GgufInts kv_heads = k.get_each("attention.head_count_kv", layers);
  out.erase("num_key_value_heads");
  bool shares = false;  // global layers without values of their own: the keys serve
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool local = out["layer_types"][static_cast<std::size_t>(i)] == "sliding_attention";
    const char* kind = local ? "num_key_value_heads" : "num_global_key_value_heads";
    const std::int64_t heads = kv_heads[static_cast<std::size_t>(i)];
    if (out.contains(kind) && out[kind] != heads) {
      throw Error("{}: {} differs among layers of one kind", k.origin(), k.key("attention.head_count_kv"));
    }
    out[kind] = heads;
    if (!local) shares = k.find(fmt::format("blk.{}.attn_v.weight", i)) == nullptr;
  }
  out["attention_k_eq_v"] = shares;
  if (!out.contains("num_key_value_heads")) out["num_key_value_heads"] = out["num_global_key_value_heads"];
  if (!shares && out.contains("num_global_key_value_heads") && out["num_global_key_value_heads"] != out["num_key_value_heads"]) {
    throw Error("{}: {} differs between local and global layers that have values of their own", k.origin(), k.key("attention.head_count_kv"));
  }
  const bool moe = k.get_int("expert_count", 0) > 0;
  out["enable_moe_block"] = moe;
  if (moe) {
    out["num_experts"] = k.get_int("expert_count");
    out["top_k_experts"] = k.get_int("expert_used_count");
    out["moe_intermediate_size"] = k.get_int("expert_feed_forward_length");
  }
  const json global = {{"rope_type", "proportional"},
                       {"rope_theta", k.get_float("rope.freq_base", 10000.0)},
                       {"partial_rotary_factor", turning_part(k)}};
  json local = local_rope(k);
  local["partial_rotary_factor"] = static_cast<double>(k.get_int("rope.dimension_count_swa", dim)) / static_cast<double>(dim);
  out["rope_parameters"] = {{"full_attention", global}, {"sliding_attention", local}};
}

void smollm3(const GgufKeys&, json& out) { out["no_rope_layer_interval"] = 4; }  // no key: every file means this

void gpt_oss(const GgufKeys& k, json& out) {
  out["num_local_experts"] = k.get_int("expert_count");
  out["num_experts_per_tok"] = k.get_int("expert_used_count");
  out["intermediate_size"] = k.get_int("expert_feed_forward_length");
  // Alternating, a local layer first.
  local_layers(k, out, 2);
  // The published configurations do not round the ends of YaRN's ramp, and llama.cpp's files do not say so.
  json& rope = out["rope_parameters"];
  if (!rope.contains("truncate")) rope["truncate"] = false;
}

void minimax(const GgufKeys& k, json& out) {
  out["num_local_experts"] = k.get_int("expert_count");
  out["num_experts_per_tok"] = k.get_int("expert_used_count");
  out["intermediate_size"] = k.get_int("expert_feed_forward_length");
  require_gating(k, kSigmoid, kSigmoid);
}

void latent_attention(const GgufKeys& k, json& out) {
  const std::int64_t rope_dim = k.get_int("rope.dimension_count"), layers = out["num_hidden_layers"];
  // Files with kv_b whole have the lengths of unfolded heads under the usual keys.
  const bool folded = k.has("attention.key_length_mla");
  const std::int64_t key = k.get_int(folded ? "attention.key_length_mla" : "attention.key_length");
  if (rope_dim <= 0 || key <= rope_dim) throw Error("{}: {} of {} channels of a query turn", k.origin(), rope_dim, key);
  out["qk_rope_head_dim"] = out["head_dim"] = rope_dim;
  out["qk_nope_head_dim"] = key - rope_dim;
  out["v_head_dim"] = k.get_int(folded ? "attention.value_length_mla" : "attention.value_length");
  out["kv_lora_rank"] = k.get_int("attention.kv_lora_rank");
  out["q_lora_rank"] = k.get_int("attention.q_lora_rank", 0);
  out["num_key_value_heads"] = out["num_attention_heads"];
  out["first_k_dense_replace"] = k.get_int("leading_dense_block_count", 0);
  out["n_routed_experts"] = k.get_int("expert_count");
  out["num_experts_per_tok"] = k.get_int("expert_used_count");
  out["moe_intermediate_size"] = k.get_int("expert_feed_forward_length");
  out["n_shared_experts"] = k.get_int("expert_shared_count", 0);
  out["routed_scaling_factor"] = k.get_float("expert_weights_scale", 1.0);
  out["norm_topk_prob"] = k.get_bool("expert_weights_norm", false);
  // Files made before the keys of groups were: DeepSeek-V3 and R1 choose 4 of 8 groups, others have none.
  const bool v3 = k.arch() == GgufArch::kDeepSeek2 && layers == 61 && out["n_routed_experts"] == 256;
  out["n_group"] = k.get_int("expert_group_count", v3 ? 8 : 1);
  out["topk_group"] = k.get_int("expert_group_used_count", v3 ? 4 : 1);
  require_gating(k, k.arch() == GgufArch::kDeepSeek2 ? kSigmoid : kSoftmax, kSoftmax);

  json& rope = out["rope_parameters"];
  rope.erase("partial_rotary_factor");
  if (k.has("rope.scaling.yarn_log_multiplier")) {  // a tenth of mscale_all_dim, which these models have mscale equal to
    const double all = std::round(k.get_float("rope.scaling.yarn_log_multiplier") * 1e7) / 1e6;
    rope["mscale"] = rope["mscale_all_dim"] = all;
  }
  if (k.has("attention.temperature_scale")) {
    rope["llama_4_scaling_beta"] = k.get_float("attention.temperature_scale");
    const std::int64_t context = rope.value("original_max_position_embeddings", std::int64_t{0});
    const std::int64_t span = k.get_int("attention.temperature_length", context);
    if (context != 0 && span != context) {
      throw Error("{}: {} is {}, the original context {}", k.origin(), k.key("attention.temperature_length"), span, context);
    }
    rope["original_max_position_embeddings"] = span;
  }
}

struct Mamba {
  std::int64_t heads, head_dim, groups, state, conv;
};

Mamba mamba_of(const GgufKeys& k) {
  Mamba m{.heads = k.get_int("ssm.time_step_rank"),
          .head_dim = 0,
          .groups = k.get_int("ssm.group_count"),
          .state = k.get_int("ssm.state_size"),
          .conv = k.get_int("ssm.conv_kernel")};
  const std::int64_t inner = k.get_int("ssm.inner_size");
  if (m.heads <= 0 || inner % m.heads != 0) throw Error("{}: {} channels of {} heads", k.origin(), inner, m.heads);
  m.head_dim = inner / m.heads;
  return m;
}

// A block attends where it has key-value heads, feeds forward where that has a length, and else is a Mamba-2 layer.
void nemotron(const GgufKeys& k, json& out) {
  const std::int64_t layers = out["num_hidden_layers"];
  const GgufInts heads = k.get_each("attention.head_count_kv", layers), lengths = k.get_each("feed_forward_length", layers);
  const bool moe = k.arch() == GgufArch::kNemotronHMoe;
  json types = json::array();
  for (std::size_t i = 0; i < heads.size(); ++i) {
    types.push_back(lengths[i] != 0 ? (moe ? "moe" : "mlp") : heads[i] != 0 ? "attention" : "mamba");
  }
  out["layers_block_type"] = types;
  const Mamba m = mamba_of(k);
  out["mamba_num_heads"] = m.heads;
  out["mamba_head_dim"] = m.head_dim;
  out["n_groups"] = m.groups;
  out["ssm_state_size"] = m.state;
  out["conv_kernel"] = m.conv;
  out["layer_norm_epsilon"] = out["rms_norm_eps"];
  out["mlp_hidden_act"] = "relu2";
  out["use_conv_bias"] = k.find_ending(".ssm_conv1d.bias") != nullptr;
  out["mlp_bias"] = k.find_ending(".ffn_up.bias") != nullptr;
  if (!moe) return;
  out["n_routed_experts"] = k.get_int("expert_count");
  out["num_experts_per_tok"] = k.get_int("expert_used_count");
  out["moe_intermediate_size"] = k.get_int("expert_feed_forward_length");
  out["moe_shared_expert_intermediate_size"] = k.get_int("expert_shared_feed_forward_length", 0);
  out["moe_latent_size"] = k.get_int("moe_latent_size", 0);
  out["norm_topk_prob"] = k.get_bool("expert_weights_norm", false);
  out["routed_scaling_factor"] = k.get_float("expert_weights_scale", 1.0);
  out["n_group"] = k.get_int("expert_group_count", 1);
  out["topk_group"] = k.get_int("expert_group_used_count", 1);
}

void granite(const GgufKeys& k, json& out) {
  const std::int64_t layers = out["num_hidden_layers"];
  json types = json::array();
  for (const std::int64_t heads : k.get_each("attention.head_count_kv", layers)) types.push_back(heads != 0 ? "attention" : "mamba");
  out["layer_types"] = types;
  const Mamba m = mamba_of(k);
  out["mamba_n_heads"] = m.heads;
  out["mamba_d_head"] = m.head_dim;
  out["mamba_n_groups"] = m.groups;
  out["mamba_d_state"] = m.state;
  out["mamba_d_conv"] = m.conv;
  out["mamba_conv_bias"] = k.find_ending(".ssm_conv1d.bias") != nullptr;
  out["attention_multiplier"] = k.get_float("attention.scale", 1 / std::sqrt(out["head_dim"].get<double>()));
  out["embedding_multiplier"] = k.get_float("embedding_scale", 1.0);
  out["residual_multiplier"] = k.get_float("residual_scale", 1.0);
  out["logits_scaling"] = k.get_float("logit_scale", 1.0);
  out["position_embedding_type"] = k.get_bool("rope.scaling.finetuned", true) ? "rope" : "nope";
  const std::int64_t experts = k.get_int("expert_count", 0);
  out["num_local_experts"] = experts;
  if (experts > 0) {
    out["num_experts_per_tok"] = k.get_int("expert_used_count");
    out["shared_intermediate_size"] = k.get_int("expert_shared_feed_forward_length");
    if (k.has("expert_feed_forward_length")) out["intermediate_size"] = k.get_int("expert_feed_forward_length");
  } else if (const SourceTensor* up = k.find_ending(".ffn_up.weight")) {
    out["shared_intermediate_size"] = up->extents.front();  // files give another feed-forward's length
  }
}

}  // namespace

void publish_gguf_family(const GgufKeys& k, json& out) {
  if (has_qwen_experts(k.arch())) experts(k, out);
  if (has_delta_nets(k.arch())) return delta_nets(k, out);
  switch (k.arch()) {
    case GgufArch::kSmolLm3: return smollm3(k, out);
    case GgufArch::kGemma3: return gemma3(k, out);
    case GgufArch::kGemma4: return gemma4(k, out);
    case GgufArch::kGptOss: return gpt_oss(k, out);
    case GgufArch::kMiniMaxM2: return minimax(k, out);
    case GgufArch::kDeepSeek2:
    case GgufArch::kMistral4: return latent_attention(k, out);
    case GgufArch::kNemotronH:
    case GgufArch::kNemotronHMoe: return nemotron(k, out);
    case GgufArch::kGraniteHybrid: return granite(k, out);
    default: return;
  }
}

}  // namespace strata
