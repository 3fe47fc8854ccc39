#include "model/registry.h"

#include <algorithm>

#include "base/error.h"
#include "model/families/families.h"

namespace strata {

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list;
    for (const auto& some :
         {decoder_families(), qwen_hybrid_families(), qwen4_families(), gemma3_families(), gemma4_families(),
          gpt_oss_families(), minimax_families(), mla_families(), mamba_hybrid_families()})
      list.insert(list.end(), some.begin(), some.end());
    return list;
  }();
  return all;
}

const Family& find_family(const ModelConfig& config) {
  const auto holds = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const Family& family : families()) {
    if (holds(family.architectures, config.architecture())) return family;
  }
  for (const Family& family : families()) {
    if (holds(family.model_types, config.model_type())) return family;
  }
  std::string known;
  for (const Family& family : families()) {
    for (const std::string& architecture : family.architectures)
      known += (known.empty() ? "" : ", ") + architecture;
  }
  throw Error("{}: architecture \"{}\" (model_type \"{}\") is not known; known are {}",
              config.root().origin(), config.architecture(), config.model_type(), known);
}

Model load_model(Checkpoint& checkpoint, Ops& ops, const LoadOptions& options) {
  const ModelConfig& config = checkpoint.config();
  const Weights weights(checkpoint, ops, options);
  Model model = find_family(config).build(weights);
  model.architecture = config.architecture();
  checkpoint.finish();
  return model;
}

}  // namespace strata
