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

}  // namespace

const GgufArchName& gguf_arch_of(const ModelConfig& config) {
  const std::string& type = config.model_type();
  for (const GgufArchName& a : kGgufArchs) {
    if (type != a.model_type && type + "_text" != a.model_type) continue;
    if (a.arch == GgufArch::kNemotronH && nemotron_has_experts(config.text())) continue;  // the next row's
    return a;
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
    // A key of our own: llama.cpp always rounds the ends of YaRN's ramp. It takes both scales of DeepSeek's for equal.
    if (rope.has("truncate") || m.arch == GgufArch::kGptOss) set("rope.scaling.yarn_truncate", rope.get_bool("truncate", true));
    const double mscale = rope.get_float("mscale", 0), all = rope.get_float("mscale_all_dim", 0);
    if (mscale != all || (all != 0 && !has_latent_attention(m.arch))) {
      throw Error("{}: mscale {} beside mscale_all_dim {} has no form in GGUF here", rope.where(), mscale, all);
    }
  } else if (kind != "default" && kind != "mrope" && kind != "llama3" && kind != "factors" &&
             !(kind == "proportional" && m.arch == GgufArch::kGemma4)) {
    throw Error("{}: rope_type \"{}\" has no form in GGUF here", rope.where(), kind);
  }

  set_gguf_family(to, config, m);
  if (!has_delta_nets(m.arch)) return;
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
  if (kind == "proportional") {  // the slower channels stand still
    const double part = rope.get_float("partial_rotary_factor", 1.0);
    const auto turning = static_cast<std::int64_t>(part * static_cast<double>(head_dim)) / 2;
    constexpr float kStill = 1e30F;
    for (std::int64_t i = 0; i < head_dim / 2; ++i) factors.push_back(i < turning ? 1.0F : kStill);
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
