#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"

namespace strata {
namespace {

// 1 / base^(2i / dim), in f32 as the reference implementations form it.
std::vector<float> plain_frequencies(double base, int dim) {
  std::vector<float> out(static_cast<std::size_t>(dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    out[i] = 1.0F / std::pow(static_cast<float>(base), exponent);
  }
  return out;
}

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
void scale_llama3(std::vector<float>& freq, const Json& p) {
  const double factor = p.get_float("factor"), low = p.get_float("low_freq_factor"),
               high = p.get_float("high_freq_factor");
  const double context = p.get_float("original_max_position_embeddings");
  for (float& f : freq) {
    const double turns = context * f / (2 * std::numbers::pi);  // in the original context
    const double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    f = static_cast<float>((1 - keep) * f / factor + keep * f);
  }
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// YaRN (Peng et al. 2023): channels that turn often in the original context are kept, those that turn seldom
// interpolated.
float scale_yarn(std::vector<float>& freq, const Json& p, const Json& config, double base, int dim) {
  const double original =
      p.get_float("original_max_position_embeddings", config.get_float("max_position_embeddings", 0));
  const double factor =
      p.has("factor") ? p.get_float("factor") : config.get_float("max_position_embeddings") / original;
  const auto channel = [&](double turns) {
    return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = channel(p.get_float("beta_fast", 32)), high = channel(p.get_float("beta_slow", 1));
  if (p.get_bool("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < freq.size(); ++i) {
    const double interpolate = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    freq[i] = static_cast<float>(freq[i] / factor * interpolate + freq[i] * (1 - interpolate));
  }
  if (p.has("attention_factor")) return static_cast<float>(p.get_float("attention_factor"));
  const double mscale = p.get_float("mscale", 0), all = p.get_float("mscale_all_dim", 0);
  if (mscale != 0 && all != 0)
    return static_cast<float>(yarn_mscale(factor, mscale) / yarn_mscale(factor, all));
  return static_cast<float>(yarn_mscale(factor, 1));
}

}  // namespace

Json rope_parameters(const Json& config, std::string_view layer_type) {
  const Json all = config.get("rope_parameters");
  if (!layer_type.empty() && all.has(layer_type)) return all.at(layer_type);
  if (all.is_object()) return all;
  return config.get("rope_scaling").is_object() ? config.at("rope_scaling")
                                                : Json::parse("{}", config.origin());
}

std::shared_ptr<Rope> load_rope(const Json& config, int head_dim, Ops& ops, std::string_view layer_type) {
  const Json p = rope_parameters(config, layer_type);
  const std::string kind = p.has("rope_type") ? p.get_string("rope_type") : p.get_string("type", "default");
  const double base =
      p.has("rope_theta") ? p.get_float("rope_theta") : config.get_float("rope_theta", 10000.0);
  const double part = p.has("partial_rotary_factor") ? p.get_float("partial_rotary_factor")
                                                     : config.get_float("partial_rotary_factor", 1.0);
  const int dim = kind == "proportional" ? head_dim : static_cast<int>(head_dim * part);
  if (dim <= 0 || dim > head_dim || dim % 2 != 0) {
    throw Error("{}: {} of {} head channels to rotate", p.where(), dim, head_dim);
  }

  auto rope = std::make_shared<Rope>();
  std::vector<float> freq = plain_frequencies(base, dim);
  if (kind == "linear") {
    for (float& f : freq) f /= static_cast<float>(p.get_float("factor"));
  } else if (kind == "llama3") {
    scale_llama3(freq, p);
  } else if (kind == "yarn") {
    rope->scale = scale_yarn(freq, p, config, base, dim);
  } else if (kind == "proportional") {  // the whole head pairs up, its slower part stands still
    const auto turning = static_cast<std::size_t>(static_cast<int>(part * head_dim) / 2);
    for (std::size_t i = 0; i < freq.size(); ++i)
      freq[i] = i < turning ? freq[i] / static_cast<float>(p.get_float("factor", 1)) : 0;
  } else if (kind == "factors") {
    const std::vector<double> factors = p.get_floats("factors");
    if (factors.size() != freq.size())
      throw Error("{}: {} factors for {} frequencies", p.where(), factors.size(), freq.size());
    for (std::size_t i = 0; i < freq.size(); ++i) freq[i] /= static_cast<float>(factors[i]);
  } else if (kind != "default" && kind != "mrope") {
    throw Error(
        "{}: rope_type \"{}\" is not supported (default, linear, llama3, yarn, proportional, factors are)",
        p.where(), kind);
  }
  if (p.has("mrope_section")) {
    const std::vector<int> section = p.get_ints("mrope_section");
    if (section.size() != 3)
      throw Error("{}: mrope_section has {} streams, expected 3", p.where(), section.size());
    std::copy(section.begin(), section.end(), rope->mrope_section.begin());
    rope->mrope_interleaved = p.get_bool("mrope_interleaved", false);
  }
  if (p.has("llama_4_scaling_beta")) {
    rope->query_beta = static_cast<float>(p.get_float("llama_4_scaling_beta"));
    rope->query_span = p.get_int("original_max_position_embeddings");
  }
  rope->inv_freq =
      ops.load_vector(Tensor(freq.data(), DType::kF32, {static_cast<std::int64_t>(freq.size())}));
  return rope;
}

}  // namespace strata
