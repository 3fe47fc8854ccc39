// Keys of a GGUF file that an architecture has beyond sizes: the reverse of gguf_families.cpp.
#include <algorithm>

#include "base/error.h"
#include "loader/gguf_export_metadata.h"

namespace strata {
namespace {

constexpr std::int64_t kSoftmax = 1, kSigmoid = 2;  // expert_gating_func

std::vector<std::string> nemotron_types(const Json& c) {
  if (c.has("layers_block_type")) return c.get_strings("layers_block_type");
  std::vector<std::string> types;
  for (const char letter : c.get_string("hybrid_override_pattern")) {
    types.emplace_back(letter == 'M' ? "mamba" : letter == '*' ? "attention" : letter == 'E' ? "moe" : "mlp");
  }
  return types;
}

class Setter {
 public:
  Setter(GgufWriter* to, const ModelConfig& config, const GgufModel& m)
      : to_(to), c_(config.text()), m_(m), name_(gguf_arch_of(config).file) {}

  void set() {
    switch (m_.arch) {
      case GgufArch::kLlama:
      case GgufArch::kQwen2:
      case GgufArch::kQwen3:
      case GgufArch::kQwen3Moe: no_window(); break;
      case GgufArch::kSmolLm3: return smollm3();
      case GgufArch::kGemma3: return gemma3();
      case GgufArch::kGemma4: return gemma4();
      case GgufArch::kGptOss: return gpt_oss();
      case GgufArch::kMiniMaxM2: return minimax();
      case GgufArch::kDeepSeek2:
      case GgufArch::kMistral4: return latent_attention();
      case GgufArch::kNemotronH:
      case GgufArch::kNemotronHMoe: return nemotron();
      case GgufArch::kGraniteHybrid: return granite();
      default: break;
    }
    if (!has_qwen_experts(m_.arch)) return;
    put("expert_count", m_.experts);
    copy("expert_used_count", "num_experts_per_tok");
    copy("expert_feed_forward_length", "moe_intermediate_size");
    copy_if("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  }

  // Head sizes of local and of global layers; within a kind all are alike, and a missing kind has the other's.
  std::pair<std::int64_t, std::int64_t> gemma4_head_dims() const {
    const GgufBools local = local_layers(6);
    std::int64_t dims[2] = {0, 0};
    for (std::int64_t i = 0; i < m_.layers; ++i) {
      const bool global = !local[static_cast<std::size_t>(i)];
      const int usual = global && !c_.has("per_layer_config") ? c_.get_int("global_head_dim", 512) : static_cast<int>(m_.head_dim);
      const Json own = c_.get("per_layer_config").get(std::to_string(i));
      const std::int64_t dim = own.is_object() ? own.get_int("head_dim", usual) : usual;
      std::int64_t& of_kind = dims[global ? 1 : 0];
      require(of_kind == 0 || of_kind == dim, "per_layer_config");
      of_kind = dim;
    }
    return {dims[0] != 0 ? dims[0] : dims[1], dims[1] != 0 ? dims[1] : dims[0]};
  }

 private:
  void put(std::string_view key, const GgufValue& value) { to_->set(fmt::format("{}.{}", name_, key), value); }
  void copy(std::string_view key, const char* from) { put(key, c_.get_int64(from)); }
  void copy_if(std::string_view key, const char* from) {
    if (c_.has(from)) copy(key, from);
  }
  // What every file of the architecture means without saying it.
  void require(bool fine, const char* key) const {
    if (!fine) throw Error("{}: {} {} has no form in GGUF's {}", c_.origin(), key, c_.get(key).dump(), name_);
  }

  void no_window() const { require(!c_.has("sliding_window") || !c_.get_bool("use_sliding_window", true), "sliding_window"); }

  void smollm3() const {
    no_window();
    constexpr int kEvery = 4;  // the fourth has no positions
    if (!c_.has("no_rope_layers")) return require(c_.get_int("no_rope_layer_interval", 0) == kEvery, "no_rope_layer_interval");
    const std::vector<int> turns = c_.get_ints("no_rope_layers");
    for (std::size_t i = 0; i < turns.size(); ++i) require((turns[i] != 0) == ((i + 1) % kEvery != 0), "no_rope_layers");
  }

  GgufBools local_layers(int usual_period) const {
    const int period = c_.get_int("sliding_window_pattern", c_.get_int("_sliding_window_pattern", usual_period));
    const std::vector<std::string> types = c_.has("layer_types") ? c_.get_strings("layer_types") : std::vector<std::string>{};
    GgufBools local;
    for (std::int64_t i = 0; i < m_.layers; ++i) {
      local.push_back(types.empty() ? (i + 1) % period != 0 : types.at(static_cast<std::size_t>(i)) == "sliding_attention");
    }
    if (m_.arch == GgufArch::kGemma4) local.back() = false;  // whatever the list says
    return local;
  }

  // Windows of local layers, and the base they rotate with.
  void windows(int usual_period) {
    if (!c_.has("sliding_window")) return;
    copy("attention.sliding_window", "sliding_window");
    put("attention.sliding_window_pattern", local_layers(usual_period));
  }

  void gemma() {
    // llama.cpp caps gemma4 at 30 where the key is missing; 0 is no cap.
    if (c_.has("final_logit_softcapping") || m_.arch == GgufArch::kGemma4) {
      put("final_logit_softcapping", c_.get_float("final_logit_softcapping", 0));
    }
    windows(6);
    if (!c_.has("sliding_window")) return;
    const Json rope = c_.get("rope_parameters").get("sliding_attention");
    put("rope.freq_base_swa", rope.has("rope_theta") ? rope.get_float("rope_theta") : c_.get_float("rope_local_base_freq", 10000.0));
  }

  void gemma3() {
    require(!c_.has("attn_logit_softcapping"), "attn_logit_softcapping");
    gemma();
  }

  void gemma4() {
    gemma();
    const bool shares = c_.get_bool("attention_k_eq_v", false);
    const auto [local_dim, global_dim] = gemma4_head_dims();
    const GgufBools local = local_layers(6);
    GgufInts kv_heads;
    for (std::int64_t i = 0; i < m_.layers; ++i) {
      const bool global = !local[static_cast<std::size_t>(i)];
      const int usual = global && shares ? c_.get_int("num_global_key_value_heads", static_cast<int>(m_.kv_heads)) : static_cast<int>(m_.kv_heads);
      const Json own = c_.get("per_layer_config").get(std::to_string(i));
      kv_heads.push_back(own.is_object() ? own.get_int("num_key_value_heads", usual) : usual);
    }
    for (const char* length : {"attention.key_length", "attention.value_length"}) {
      put(length, global_dim);
      put(std::string(length) + "_swa", local_dim);
    }
    put("attention.head_count_kv", kv_heads);
    put("rope.dimension_count", global_dim);
    put("rope.dimension_count_swa", local_dim);
    put("attention.shared_kv_layers", std::int64_t{c_.get_int("num_kv_shared_layers", 0)});
    put("embedding_length_per_layer_input", std::int64_t{c_.get_int("hidden_size_per_layer_input", 0)});
    if (!c_.get_bool("enable_moe_block", false)) return;
    copy("expert_count", "num_experts");
    copy("expert_used_count", "top_k_experts");
    copy("expert_feed_forward_length", "moe_intermediate_size");
  }

  void routed(const char* length) {
    put("expert_count", m_.experts);
    copy("expert_used_count", "num_experts_per_tok");
    copy("expert_feed_forward_length", length);
  }

  void gpt_oss() {
    routed("intermediate_size");
    windows(2);
    constexpr double kLimit = 7;
    require(c_.get_float("swiglu_limit", kLimit) == kLimit, "swiglu_limit");
  }

  void minimax() {
    routed("intermediate_size");
    put("expert_gating_func", kSigmoid);
    if (c_.has("rotary_dim") && !c_.get("rope_parameters").has("partial_rotary_factor")) copy("rope.dimension_count", "rotary_dim");
  }

  void latent_attention() {
    routed("moe_intermediate_size");
    const std::int64_t R = c_.get_int64("kv_lora_rank"), Dr = c_.get_int64("qk_rope_head_dim");
    put("attention.head_count_kv", std::int64_t{1});  // one latent for all heads
    put("attention.kv_lora_rank", R);
    if (c_.get_int("q_lora_rank", 0) > 0) copy("attention.q_lora_rank", "q_lora_rank");
    put("attention.key_length", R + Dr);
    put("attention.value_length", R);
    put("attention.key_length_mla", c_.get_int64("qk_nope_head_dim") + Dr);
    copy("attention.value_length_mla", "v_head_dim");
    put("rope.dimension_count", Dr);
    require(c_.get_bool("rope_interleave", true), "rope_interleave");
    require(c_.get_int("moe_layer_freq", 1) == 1, "moe_layer_freq");
    put("leading_dense_block_count", std::int64_t{c_.get_int("first_k_dense_replace", 0)});
    put("expert_shared_count", std::int64_t{c_.get_int("n_shared_experts", 0)});
    put("expert_weights_scale", c_.get_float("routed_scaling_factor", 1.0));
    put("expert_weights_norm", c_.get_bool("norm_topk_prob", true));
    put("expert_group_count", std::int64_t{c_.get_int("n_group", 1)});
    put("expert_group_used_count", std::int64_t{c_.get_int("topk_group", 1)});
    put("expert_gating_func", m_.arch == GgufArch::kDeepSeek2 ? kSigmoid : kSoftmax);
    const Json rope = c_.get(c_.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
    if (!rope.is_object()) return;
    if (rope.has("mscale_all_dim")) put("rope.scaling.yarn_log_multiplier", 0.1 * rope.get_float("mscale_all_dim"));
    if (!rope.has("llama_4_scaling_beta")) return;
    put("attention.temperature_scale", rope.get_float("llama_4_scaling_beta"));
    put("attention.temperature_length", rope.get_int64("original_max_position_embeddings"));
  }

  void mamba(const char* heads, const char* head_dim, const char* state, std::int64_t conv) {
    const std::int64_t count = c_.get_int64(heads);
    put("ssm.time_step_rank", count);
    put("ssm.inner_size", count * c_.get_int64(head_dim));
    put("ssm.group_count", m_.mamba_groups);
    copy("ssm.state_size", state);
    put("ssm.conv_kernel", conv);
  }

  void nemotron() {
    GgufInts kv_heads, lengths;
    const bool moe = m_.arch == GgufArch::kNemotronHMoe;
    const char* length = moe ? "moe_intermediate_size" : "intermediate_size";
    for (const std::string& type : nemotron_types(c_)) {
      const bool forward = type == "moe" || type == "mlp";
      require(!forward || (type == "moe") == moe, "layers_block_type");  // a file has one kind of feed-forward
      kv_heads.push_back(type == "attention" || type == "full_attention" ? m_.kv_heads : 0);
      lengths.push_back(forward ? c_.get_int64(length) : 0);
    }
    put("attention.head_count_kv", kv_heads);
    put("feed_forward_length", lengths);
    for (const char* key : {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"}) {  // llama.cpp wants both
      put(key, c_.get_float("layer_norm_epsilon", 1e-5));
    }
    require(c_.get_string("mlp_hidden_act", "relu2") == "relu2", "mlp_hidden_act");
    constexpr double kStep = 0.001;
    require(c_.get_float("time_step_min", kStep) == kStep, "time_step_min");
    mamba("mamba_num_heads", "mamba_head_dim", "ssm_state_size", c_.get_int("conv_kernel", 4));
    if (!moe) return;
    routed("moe_intermediate_size");
    copy_if("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size");
    copy_if("expert_shared_count", "n_shared_experts");
    copy_if("moe_latent_size", "moe_latent_size");
    put("expert_weights_norm", c_.get_bool("norm_topk_prob", true));
    put("expert_weights_scale", c_.get_float("routed_scaling_factor", 1.0));
    put("expert_group_count", std::int64_t{c_.get_int("n_group", 1)});
    put("expert_group_used_count", std::int64_t{c_.get_int("topk_group", 1)});
  }

  void granite() {
    GgufInts kv_heads;
    for (const std::string& type : c_.get_strings("layer_types")) {
      kv_heads.push_back(type == "mamba" || type == "linear_attention" ? 0 : m_.kv_heads);
    }
    require(std::find(kv_heads.begin(), kv_heads.end(), 0) != kv_heads.end(), "layer_types");  // that is another architecture
    put("attention.head_count_kv", kv_heads);
    mamba("mamba_n_heads", "mamba_d_head", "mamba_d_state", c_.get_int("mamba_d_conv", 4));
    for (const auto& [key, from] : {std::pair{"attention.scale", "attention_multiplier"}, {"embedding_scale", "embedding_multiplier"},
                                    {"residual_scale", "residual_multiplier"}, {"logit_scale", "logits_scaling"}}) {
      put(key, c_.get_float(from, 1.0));
    }
    put("rope.scaling.finetuned", c_.get_string("position_embedding_type", "nope") == "rope");
    if (m_.experts == 0) return copy("feed_forward_length", "shared_intermediate_size");
    routed("intermediate_size");
    copy("expert_shared_feed_forward_length", "shared_intermediate_size");
  }

  GgufWriter* to_;
  const Json& c_;
  const GgufModel& m_;
  std::string_view name_;
};

}  // namespace

bool nemotron_has_experts(const Json& config) {
  const std::vector<std::string> types = nemotron_types(config);
  return std::find(types.begin(), types.end(), "moe") != types.end();
}

std::int64_t gguf_global_head_dim(const ModelConfig& config, const GgufModel& model) {
  return model.arch == GgufArch::kGemma4 ? Setter(nullptr, config, model).gemma4_head_dims().second : model.head_dim;
}

void set_gguf_family(GgufWriter& to, const ModelConfig& config, const GgufModel& model) { Setter(&to, config, model).set(); }

}  // namespace strata
