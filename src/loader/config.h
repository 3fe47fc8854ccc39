// ModelConfig: what config.json and generation_config.json of a model folder say.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "loader/json.h"

namespace strata {

// Sampling settings the model's makers suggest; an absent one is not mentioned in the files.
struct SamplingDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
};

// Plain values, fixed once made; copies are cheap and any thread may read them.
class ModelConfig {
 public:
  // Reads `folder`/config.json and, where it exists, generation_config.json. Throws Error.
  static ModelConfig load(const std::filesystem::path& folder);
  // From documents; `generation` may be null.
  ModelConfig(const Json& config, const Json& generation);

  // "Qwen3_5ForCausalLM": the first of `architectures`; empty when there is none.
  const std::string& architecture() const { return architecture_; }
  // "qwen3_5_text": model_type of the text model.
  const std::string& model_type() const { return model_type_; }
  // The text model's object: `text_config` laid over the outer keys (which apply where it says nothing), or
  // the whole document when it is flat.
  const Json& text() const { return text_; }
  // config.json as it stands.
  const Json& root() const { return root_; }
  // Token ids that end an answer: those of generation_config.json, else of config.json; possibly none.
  const std::vector<int>& end_tokens() const { return end_tokens_; }
  const SamplingDefaults& sampling() const { return sampling_; }

 private:
  Json root_, text_;
  std::string architecture_, model_type_;
  std::vector<int> end_tokens_;
  SamplingDefaults sampling_;
};

}  // namespace strata
