#include "loader/config.h"

namespace strata {
namespace {

// An id, a list of ids, or nothing.
std::vector<int> token_ids(const Json& value) {
  if (value.is_null()) return {};
  return value.is_array() ? value.as_ints() : std::vector<int>{value.as_int()};
}

Json text_of(const Json& root) {
  // `text_config` in most families; `llm_config` and `language_config` in some that wrap another maker's
  // model.
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    if (root.get(key).is_object()) return Json::merge(root.at(key), root);
  }
  return root;
}

SamplingDefaults sampling_of(const Json& generation) {
  SamplingDefaults s;
  const auto number = [&](const char* key, std::optional<double>& to) {
    if (generation.has(key)) to = generation.get_float(key);
  };
  number("temperature", s.temperature);
  number("top_p", s.top_p);
  number("min_p", s.min_p);
  number("repetition_penalty", s.repetition_penalty);
  if (generation.has("top_k")) s.top_k = generation.get_int("top_k");
  if (generation.has("do_sample")) s.do_sample = generation.get_bool("do_sample");
  return s;
}

}  // namespace

ModelConfig ModelConfig::load(const std::filesystem::path& folder) {
  const auto generation = folder / "generation_config.json";
  return {Json::load(folder / "config.json"),
          std::filesystem::exists(generation) ? Json::load(generation) : Json()};
}

ModelConfig::ModelConfig(const Json& config, const Json& generation)
    : root_(config), text_(text_of(config)), sampling_(sampling_of(generation)) {
  if (root_.has("architectures") && root_.at("architectures").size() > 0) {
    architecture_ = root_.at("architectures")[0].as_string();
  }
  model_type_ = text_.get_string("model_type", "");
  end_tokens_ = token_ids(generation.get("eos_token_id"));
  if (end_tokens_.empty()) end_tokens_ = token_ids(text_.get("eos_token_id"));
}

}  // namespace strata
