#include "loader/gguf_export_metadata.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace strata {
namespace {

// How layers rotate; where they differ, those that see everything.
Json rope_of(const Json& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.get(key).is_object()) continue;
    return config.at(key).has("full_attention") ? config.at(key).at("full_attention") : config.at(key);
  }
  return Json::parse("{}", config.origin());
}

std::string rope_type(const Json& rope) { return rope.get_string(rope.has("rope_type") ? "rope_type" : "type", "default"); }

// Windows of local layers, and the base they rotate with.
template <typename Set>
void set_gemma(const Json& c, const GgufModel& m, Set set) {
  if (c.has("final_logit_softcapping")) set("final_logit_softcapping", c.get_float("final_logit_softcapping"));
  if (!c.has("sliding_window")) return;
  set("attention.sliding_window", c.get_int64("sliding_window"));
  const int period = c.get_int("sliding_window_pattern", c.get_int("_sliding_window_pattern", 6));
  const std::vector<std::string> types = c.has("layer_types") ? c.get_strings("layer_types") : std::vector<std::string>{};
  GgufBools local;
  for (std::int64_t i = 0; i < m.layers; ++i) {
    local.push_back(types.empty() ? (i + 1) % period != 0 : types.at(static_cast<std::size_t>(i)) == "sliding_attention");
  }
  set("attention.sliding_window_pattern", local);
  const Json rope = c.get("rope_parameters").get("sliding_attention");
  set("rope.freq_base_swa", rope.has("rope_theta") ? rope.get_float("rope_theta") : c.get_float("rope_local_base_freq", 10000.0));
}

}  // namespace

const GgufArchName& gguf_arch_of(const ModelConfig& config) {
  const std::string& type = config.model_type();
  for (const GgufArchName& a : kGgufArchs) {
    if (type == a.model_type || type + "_text" == a.model_type) return a;
  }
  throw Error("{}: no GGUF architecture is known for model_type \"{}\"", config.root().origin(), type);
}

void set_gguf_config(GgufWriter& to, const ModelConfig& config, const GgufModel& m) {
  const Json& c = config.text();
  const GgufArchName& arch = gguf_arch_of(config);
  to.set("general.architecture", arch.file);
  const auto set = [&](std::string_view key, const GgufValue& value) { to.set(fmt::format("{}.{}", arch.file, key), value); };
  const auto copy = [&](std::string_view key, const char* from) {
    if (c.has(from)) set(key, c.get_int64(from));
  };
  set("block_count", m.layers + m.mtp_layers);
  set("attention.head_count", m.heads);
  set("attention.head_count_kv", m.kv_heads);
  set("attention.key_length", m.head_dim);
  set("attention.value_length", m.head_dim);
  copy("embedding_length", "hidden_size");
  copy("feed_forward_length", "intermediate_size");
  copy("context_length", "max_position_embeddings");
  copy("vocab_size", "vocab_size");
  set("attention.layer_norm_rms_epsilon", c.get_float("rms_norm_eps", 1e-6));

  const Json rope = rope_of(c);
  const auto number = [&](const char* key, double otherwise) { return rope.has(key) ? rope.get_float(key) : c.get_float(key, otherwise); };
  set("rope.freq_base", number("rope_theta", 10000.0));
  set("rope.dimension_count", static_cast<std::int64_t>(static_cast<double>(m.head_dim) * number("partial_rotary_factor", 1.0)));
  const std::string kind = rope_type(rope);
  if (kind == "linear" || kind == "yarn") {
    set("rope.scaling.type", std::string_view(kind));
    set("rope.scaling.factor", rope.get_float("factor"));
    if (rope.has("original_max_position_embeddings")) {
      set("rope.scaling.original_context_length", rope.get_int64("original_max_position_embeddings"));
    }
    if (rope.has("attention_factor")) set("rope.scaling.attn_factor", rope.get_float("attention_factor"));
    if (rope.has("beta_fast")) set("rope.scaling.yarn_beta_fast", rope.get_float("beta_fast"));
    if (rope.has("beta_slow")) set("rope.scaling.yarn_beta_slow", rope.get_float("beta_slow"));
  } else if (kind != "default" && kind != "mrope" && kind != "llama3" && kind != "factors") {
    throw Error("{}: rope_type \"{}\" has no form in GGUF here", rope.where(), kind);
  }

  if (m.arch == GgufArch::kGemma3) set_gemma(c, m, set);
  if (is_moe(m.arch)) {
    set("expert_count", c.get_int64(c.has("num_experts") ? "num_experts" : "num_local_experts"));
    set("expert_used_count", c.get_int64("num_experts_per_tok"));
    set("expert_feed_forward_length", c.get_int64("moe_intermediate_size"));
    copy("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  }
  if (!is_hybrid(m.arch)) return;
  set("ssm.group_count", m.key_heads);
  set("ssm.time_step_rank", m.value_heads);
  set("ssm.state_size", m.key_dim);
  set("ssm.inner_size", m.value_heads * m.value_dim);
  set("ssm.conv_kernel", c.get_int64("linear_conv_kernel_dim"));
  set("full_attention_interval", std::int64_t{c.get_int("full_attention_interval", 4)});
  if (c.has("layer_types")) {
    GgufBools recurrent;
    for (const std::string& type : c.get_strings("layer_types")) recurrent.push_back(type == "linear_attention");
    recurrent.resize(static_cast<std::size_t>(m.layers + m.mtp_layers), false);
    set("attention.recurrent_layers", recurrent);
  }
  if (m.mtp_layers > 0) set("nextn_predict_layers", m.mtp_layers);
  if (m.arch == GgufArch::kQwen3Next) return;
  // Position streams for text are equal, so the sections only have to add up; these are those of all published models.
  GgufInts sections = {11, 11, 10};
  if (rope.has("mrope_section")) {
    const std::vector<int> given = rope.get_ints("mrope_section");
    sections.assign(given.begin(), given.end());
  }
  sections.resize(4, 0);
  set("rope.dimension_sections", sections);
}

std::vector<float> gguf_rope_factors(const ModelConfig& config, std::int64_t head_dim) {
  const Json rope = rope_of(config.text());
  const std::string kind = rope_type(rope);
  std::vector<float> factors;
  if (kind == "factors") {
    for (const double f : rope.get_floats("factors")) factors.push_back(static_cast<float>(f));
  }
  if (kind != "llama3") return factors;
  // Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
  const double base = rope.has("rope_theta") ? rope.get_float("rope_theta") : config.text().get_float("rope_theta", 10000.0);
  const double factor = rope.get_float("factor"), low = rope.get_float("low_freq_factor"), high = rope.get_float("high_freq_factor");
  const double context = rope.get_float("original_max_position_embeddings");
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    const double turns = context * frequency / (2 * std::numbers::pi);
    const double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - keep) / factor + keep)));
  }
  return factors;
}

}  // namespace strata
