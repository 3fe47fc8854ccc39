#include "model/registry.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "loader/nvfp4.h"
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
  // Wrappers of several senses share an architecture; what the text model is, its own type says.
  for (const Family& family : families()) {
    if (holds(family.model_types, config.model_type())) return family;
  }
  for (const Family& family : families()) {
    if (holds(family.architectures, config.architecture())) return family;
  }
  std::string known;
  for (const Family& family : families()) {
    for (const std::string& architecture : family.architectures)
      known += (known.empty() ? "" : ", ") + architecture;
  }
  throw Error("{}: architecture \"{}\" (model_type \"{}\") is not known; known are {}",
              config.root().origin(), config.architecture(), config.model_type(), known);
}

namespace {

bool is_allowed(const Json& value, const std::string& allowed) {
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!is_allowed(value[i], allowed)) return false;
    }
    return true;
  }
  for (std::size_t begin = 0; begin <= allowed.size();) {
    const std::size_t end = std::min(allowed.find('|', begin), allowed.size());
    const std::string one = allowed.substr(begin, end - begin);
    if (value.is_number()) {
      if (value.as_float() == std::strtod(one.c_str(), nullptr)) return true;
    } else if ((value.is_string() ? value.as_string() : value.dump()) == one) {
      return true;
    }
    begin = end + 1;
  }
  return false;
}

// Weights are read in plain types, in FP8 with a scale for each block of 128 x 128, in MXFP4 and in NVFP4.
void check_quantization(const Json& config) {
  const Json q = config.get("quantization_config");
  if (!q.is_object()) return;
  const std::string method = q.get_string("quant_method", "");
  if (method == "mxfp4" || nvfp4_form(config)) return;
  if (method != "fp8") {
    throw Error("{}: quant_method \"{}\" is not supported (fp8, mxfp4, modelopt and compressed-tensors are)", q.where(), method);
  }
  constexpr int kBlock = 128;
  const Json blocks = q.get("weight_block_size");
  if (!blocks.is_array() || blocks.as_ints() != std::vector<int>{kBlock, kBlock}) {
    throw Error("{}: weight_block_size {} is not supported ([128, 128] is)", q.where(), blocks.dump());
  }
}

}  // namespace

Json checked_config(const Family& family, const ModelConfig& config) {
  const Json& given = config.text();
  for (const ConfigRule& rule : family.rules) {
    const Json value = given.get(rule.key);
    if (value.is_null() || is_allowed(value, rule.allowed)) continue;
    throw Error("{}: {} {} is not supported for {} (only {})", given.origin(), rule.key, value.dump(),
                family.name, rule.allowed);
  }
  check_quantization(given);
  // A null that is there is a choice too: it takes no default.
  return given.with_defaults(Json::parse(family.defaults, family.name));
}

Model load_model(Checkpoint& checkpoint, Ops& ops, const LoadOptions& options) {
  const ModelConfig& config = checkpoint.config();
  const Family& family = find_family(config);
  const Weights weights(checkpoint, ops, options, "",
                        std::make_shared<const Json>(checked_config(family, config)));
  Model model = family.build(weights);
  model.architecture = config.architecture();
  checkpoint.finish();
  return model;
}

}  // namespace strata
