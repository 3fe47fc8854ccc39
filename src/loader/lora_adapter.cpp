// PEFT's files, as its version 0.21 writes them (huggingface/peft: tuners/lora/config.py,
// tuners/lora/layer.py and utils/save_and_load.py); older ones differ in the axes of stacked parameters.
#include "loader/lora_adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

#include "base/error.h"
#include "loader/checkpoint.h"
#include "loader/json.h"
#include "loader/safetensors.h"
#include "tensor/convert.h"

namespace strata {
namespace {

constexpr int kMaxRank = 1 << 14;  // beyond it a file is broken; what an engine allows is far less

bool ends_with(const std::string& key, const std::string& suffix) {
  return key == suffix || key.ends_with("." + suffix);
}

std::string last_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// Null, false, {}, [] and "": an option that is not used.
bool unused(const Json& value) {
  if (value.is_null() || (value.is_bool() && !value.as_bool())) return true;
  return value.is_string() ? value.as_string().empty()
                           : (value.is_object() || value.is_array()) && value.size() == 0;
}

std::regex pattern(const std::string& text, const std::string& where) {
  try {
    return std::regex(text);
  } catch (const std::regex_error&) {
    throw Error("{}: \"{}\" is not a regular expression that is understood", where, text);
  }
}

// adapter_config.json.
class PeftConfig {
 public:
  explicit PeftConfig(const std::filesystem::path& file) : json_(Json::load(file)) {
    refuse_unknown();
    if (json_.get_string("peft_type", "") != "LORA") throw Error("{}: peft_type is not LORA", json_.origin());
    rank_ = json_.get_int("r");
    alpha_ = json_.get_float("lora_alpha");
    rslora_ = json_.get_bool("use_rslora", false);
    ranks_ = patterns("rank_pattern");
    alphas_ = patterns("alpha_pattern");
    if (const Json modules = json_.get("target_modules"); modules.is_string()) {
      module_regex_ = pattern(modules.as_string(), modules.where());
    } else if (modules.is_array()) {
      modules_ = modules.as_strings();
    }
    if (!json_.get("target_parameters").is_null()) parameters_ = json_.get_strings("target_parameters");
    if (const Json layers = json_.get("layers_to_transform"); layers.is_array()) {
      layers_ = layers.as_ints();
    } else if (!layers.is_null()) {
      layers_ = {layers.as_int()};
    }
    const Json layers_pattern = json_.get("layers_pattern");
    for (const std::string& p : layers_pattern.is_array()    ? layers_pattern.as_strings()
                                : layers_pattern.is_string() ? std::vector{layers_pattern.as_string()}
                                                             : std::vector<std::string>{}) {
      if (!p.empty())
        layer_regexes_.push_back(pattern("(?:.*?\\.)?" + p + "\\.(\\d+)\\..*", layers_pattern.where()));
    }
    if (layer_regexes_.empty()) layer_regexes_.emplace_back(".*?\\.[^.]*\\.(\\d+)\\..*");
  }

  const std::string& origin() const { return json_.origin(); }

  int rank(const std::string& key) const { return static_cast<int>(matched(ranks_, key).value_or(rank_)); }
  double scale(const std::string& key) const {
    const double r = rank(key);
    return matched(alphas_, key).value_or(alpha_) / (rslora_ ? std::sqrt(r) : r);
  }

  // Whether target_modules means this module.
  bool targets(const std::string& module) const {
    if (module_regex_) return std::regex_match(module, *module_regex_);
    return std::any_of(modules_.begin(), modules_.end(),
                       [&](const std::string& m) { return ends_with(module, m); });
  }

  // The parameters of a module that target_parameters means, in the order in which PEFT wraps them: the
  // module's own, in which down_proj comes after what it follows in the computation.
  std::vector<std::string> parameters(const std::string& module) const {
    std::vector<std::string> names;
    for (const std::string& p : parameters_) {
      const std::string name = last_of(p);
      if (ends_with(module + "." + name, p) && std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    }
    std::stable_sort(names.begin(), names.end(),
                     [](const auto& a, const auto& b) { return a != "down_proj" && b == "down_proj"; });
    if (names.size() > 2 || (names.size() == 2 && names[1] != "down_proj")) {
      throw Error("{}: target_parameters: the order of {} parameters of {} is not known", origin(),
                  names.size(), module);
    }
    return names;
  }

  void check_layer(const std::string& module) const {
    if (layers_.empty()) return;
    for (const std::regex& r : layer_regexes_) {
      std::smatch found;
      if (!std::regex_match(module, found, r)) continue;
      const std::string number = found[found.size() - 1];
      if (std::any_of(layers_.begin(), layers_.end(), [&](int l) { return std::to_string(l) == number; }))
        return;
      throw Error("{}: {} has weights, but layer {} is not in layers_to_transform", origin(), module, number);
    }
  }

  // Every name in the configuration must have met one of the modules or "module.parameter"s that have
  // weights.
  void check_all_met(const std::vector<std::string>& modules,
                     const std::vector<std::string>& parameters) const {
    const auto check = [&](const char* what, const std::vector<std::string>& names,
                           const std::vector<std::string>& there) {
      for (const std::string& name : names) {
        const bool met = std::any_of(there.begin(), there.end(),
                                     [&](const std::string& key) { return ends_with(key, name); });
        if (!met) throw Error("{}: {}: nothing in the weights is called \"{}\"", origin(), what, name);
      }
    };
    check("target_modules", modules_, modules);
    check("target_parameters", parameters_, parameters);
  }

  // PEFT before 0.19, or a file that does not say, may take a stack's axes the other way round.
  bool stacks_either_way() const {
    const std::string version = json_.get_string("peft_version", "");
    std::smatch found;
    if (!std::regex_search(version, found, std::regex("^(\\d+)\\.(\\d+)"))) return true;
    return std::stoi(found[1]) == 0 && std::stoi(found[2]) < 19;
  }

 private:
  using Patterns = std::vector<std::pair<std::regex, double>>;

  void refuse_unknown() const {
    static const std::vector<std::string> understood = {
        "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules",
        "target_parameters", "layers_to_transform", "layers_pattern", "peft_version", "bias",
        "init_lora_weights",
        // without meaning once trained
        "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode", "lora_dropout",
        "exclude_modules", "megatron_core", "qalora_group_size", "loftq_config", "eva_config", "corda_config",
        "lora_ga_config", "runtime_config"};
    for (const std::string& key : json_.keys()) {
      if (std::find(understood.begin(), understood.end(), key) != understood.end() || unused(json_.get(key)))
        continue;
      throw Error("{}: {} = {} is not supported", origin(), key, json_.get(key).dump());
    }
    if (const std::string bias = json_.get_string("bias", "none"); bias != "none")
      throw Error("{}: bias = \"{}\" is not supported", origin(), bias);
    // Ways to begin that change the base's own weights (PiSSA, OLoRA, LoftQ, ...) give adapters for another
    // base.
    const Json init = json_.get("init_lora_weights");
    if (!init.is_string()) return;
    const std::string how = init.as_string();
    if (how != "gaussian" && how != "eva" && how != "orthogonal")
      throw Error("{}: init_lora_weights = \"{}\" is not supported", origin(), how);
  }

  Patterns patterns(const char* key) const {
    Patterns out;
    const Json all = json_.get(key);
    if (all.is_null()) return out;
    for (const std::string& p : all.keys())
      out.emplace_back(pattern("(?:.*\\.)?(?:" + p + ")", all.where()), all.get_float(p));
    return out;
  }

  static std::optional<double> matched(const Patterns& patterns, const std::string& key) {
    for (const auto& [regex, value] : patterns) {
      if (std::regex_match(key, regex)) return value;
    }
    return {};
  }

  Json json_;
  int rank_ = 0;
  double alpha_ = 0;
  bool rslora_ = false;
  Patterns ranks_, alphas_;
  std::vector<std::string> modules_, parameters_;
  std::optional<std::regex> module_regex_;
  std::vector<int> layers_;
  std::vector<std::regex> layer_regexes_;
};

// A and B of one place in the file: a module, and how often PEFT has wrapped its parameters there.
struct Pair {
  const SourceTensor* a = nullptr;
  const SourceTensor* b = nullptr;
  bool embedding = false;
};

using Modules =
    std::map<std::string, std::map<int, Pair>>;  // module -> wrappers around it (0 = the outermost) -> pair

// "base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight" -> its place; full tables that PEFT
// saves beside an adapted embedding go to `tables` by module.
void sort_tensor(const SourceTensor& t, Modules& modules,
                 std::map<std::string, const SourceTensor*>& tables) {
  static constexpr std::string_view kPrefix = "base_model.model.", kBase = ".base_layer";
  const auto refuse = [&](const char* why) { throw Error("{}: {}: {}", t.file, t.name, why); };
  std::string name = t.name;
  if (!name.starts_with(kPrefix)) refuse("not a name that PEFT gives");
  name.erase(0, kPrefix.size());
  static constexpr struct {
    std::string_view suffix;
    bool second, embedding;
  } kKinds[] = {{".lora_A.weight", false, false},
                {".lora_B.weight", true, false},
                {".lora_embedding_A", false, true},
                {".lora_embedding_B", true, true}};
  for (const auto& kind : kKinds) {
    if (!name.ends_with(kind.suffix)) continue;
    name.erase(name.size() - kind.suffix.size());
    int depth = 0;
    for (; name.ends_with(kBase); ++depth) name.erase(name.size() - kBase.size());
    if (t.extents.size() != 2) refuse("not a matrix");
    Pair& pair = modules[name][depth];
    if ((pair.a != nullptr || pair.b != nullptr) && pair.embedding != kind.embedding)
      refuse("both an embedding's and a linear layer's weights");
    pair.embedding = kind.embedding;
    (kind.second ? pair.b : pair.a) = &t;
    return;
  }
  static constexpr std::string_view kTable = ".base_layer.weight";
  if (!name.ends_with(kTable))
    refuse("not understood: only lora_A, lora_B, lora_embedding_A and lora_embedding_B are");
  name.erase(name.size() - kTable.size());
  tables[name] = &t;
}

std::vector<float> values_of(const SourceTensor& t) {
  if (t.dtype != DType::kF32 && t.dtype != DType::kF16 && t.dtype != DType::kBF16)
    throw Error("{}: {} is {}", t.file, t.name, name(t.dtype));
  std::vector<float> out(static_cast<std::size_t>(t.extents[0] * t.extents[1]));
  row_to_f32(t.dtype, t.bytes.data(), static_cast<std::int64_t>(out.size()), out.data());
  if (!std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); }))
    throw Error("{}: {} is not finite everywhere", t.file, t.name);
  return out;
}

// `key` is what patterns are matched with: the module's name, or with its parameter's behind it.
LoraTarget target_of(const PeftConfig& config, const std::string& key, const std::string& module,
                     const Pair& pair, bool parameter) {
  if (pair.a == nullptr || pair.b == nullptr) {
    const SourceTensor& there = pair.a != nullptr ? *pair.a : *pair.b;
    throw Error("{}: {} has no partner lora_{}", there.file, there.name, pair.a != nullptr ? "B" : "A");
  }
  const std::int64_t lines = pair.a->extents[0], rank = config.rank(key);
  if (rank < 1 || rank > kMaxRank) throw Error("{}: {}: a rank of {}", config.origin(), key, rank);
  if (pair.b->extents[1] != lines) {
    throw Error("{}: {} is {} and {} is {}", pair.a->file, pair.a->name, to_string(pair.a->extents),
                pair.b->name, to_string(pair.b->extents));
  }
  if (parameter ? lines % rank != 0 : lines != rank) {
    throw Error("{}: {} is {}, its rank by adapter_config.json is {}", pair.a->file, pair.a->name,
                to_string(pair.a->extents), rank);
  }
  LoraTarget t{.name = normal_name(key.ends_with(".weight") ? module : key),
               .rank = static_cast<int>(rank),
               .embedding = pair.embedding,
               .inputs = pair.a->extents[1],
               .outputs = pair.b->extents[0],
               .a = values_of(*pair.a),
               .b = values_of(*pair.b)};
  if (t.inputs < 1 || t.outputs < 1) throw Error("{}: {} is empty", pair.a->file, pair.a->name);
  const auto scale = static_cast<float>(config.scale(key));
  for (float& x : t.b) x *= scale;
  if (!parameter) return t;
  const std::int64_t E = lines / rank;
  t.experts = static_cast<int>(E);
  t.either_way = config.stacks_either_way();
  const std::vector<float> packed =
      std::move(t.b);  // [outputs, rank, E]; A is [E, rank, inputs] as it stands
  t.b.resize(packed.size());
  for (std::int64_t o = 0; o < t.outputs; ++o) {
    for (std::int64_t r = 0; r < rank; ++r) {
      for (std::int64_t e = 0; e < E; ++e)
        t.b[static_cast<std::size_t>((e * t.outputs + o) * rank + r)] =
            packed[static_cast<std::size_t>((o * rank + r) * E + e)];
    }
  }
  return t;
}

}  // namespace

std::size_t LoraAdapter::bytes() const {
  std::size_t n = 0;
  for (const LoraTarget& t : targets) n += (t.a.size() + t.b.size()) * sizeof(float);
  return n;
}

LoraAdapter load_lora_adapter(const std::filesystem::path& folder) {
  const PeftConfig config(folder / "adapter_config.json");
  const auto file = Safetensors::open_file(folder / "adapter_model.safetensors");
  Modules modules;
  std::map<std::string, const SourceTensor*> tables;
  for (const SourceTensor& t : file->tensors()) sort_tensor(t, modules, tables);

  LoraAdapter adapter{.origin = folder.string()};
  std::vector<std::string> plain, stacked;  // what has weights
  for (const auto& [module, pairs] : modules) {
    const auto& [depth, first] = *pairs.rbegin();
    if (config.targets(module)) {
      if (depth > 0) throw Error("{}: {}: a wrapper in a wrapper", adapter.origin, module);
      config.check_layer(module);
      adapter.targets.push_back(target_of(config, module, module, first, false));
      plain.push_back(module);
      continue;
    }
    const std::vector<std::string> parameters = config.parameters(module);
    if (parameters.empty())
      throw Error("{}: {} has weights, but adapter_config.json does not name it as a target", adapter.origin,
                  module);
    // The first parameter is wrapped first: it lies innermost.
    const auto n = static_cast<int>(parameters.size());
    if (static_cast<int>(pairs.size()) != n || depth != n - 1) {
      throw Error("{}: {}: weights for {} parameters, adapter_config.json names {}", adapter.origin, module,
                  pairs.size(), n);
    }
    for (int i = 0; i < n; ++i) {
      stacked.push_back(module + "." + parameters[static_cast<std::size_t>(i)]);
      adapter.targets.push_back(target_of(config, stacked.back(), module, pairs.at(n - 1 - i), true));
    }
  }
  config.check_all_met(plain, stacked);
  for (const auto& [module, t] : tables) {
    const auto adapted = std::find_if(adapter.targets.begin(), adapter.targets.end(),
                                      [&](const LoraTarget& x) { return x.name == normal_name(module); });
    if (adapted == adapter.targets.end() || adapted->experts > 0)
      throw Error("{}: {}: a whole matrix, beside no adapter of it", t->file, t->name);
    const std::vector<std::int64_t> own = adapted->embedding ? std::vector{adapted->inputs, adapted->outputs}
                                                             : std::vector{adapted->outputs, adapted->inputs};
    if (t->extents != own)
      throw Error("{}: {} is {}, its adapter is for {}", t->file, t->name, to_string(t->extents),
                  to_string(own));
  }
  if (adapter.targets.empty()) throw Error("{}: no weights", adapter.origin);
  for (const LoraTarget& t : adapter.targets) adapter.rank = std::max(adapter.rank, t.rank);
  return adapter;
}

}  // namespace strata
