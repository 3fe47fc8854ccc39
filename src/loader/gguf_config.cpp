#include "loader/gguf_config.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "loader/gguf_keys.h"

namespace strata {
namespace {

using nlohmann::json;

const GgufArchName& arch_of(const GgufMetadata& m) {
  const std::string name = m.get_text("general.architecture");
  std::string known;
  std::string_view last;  // models of one name stand side by side
  for (const GgufArchName& a : kGgufArchs) {
    if (a.file == name) return a;
    if (a.file != last) known += (known.empty() ? "" : ", ") + std::string(a.file);
    last = a.file;
  }
  throw Error("{}: architecture \"{}\" is not supported in GGUF ({} are)", m.origin(), name, known);
}

constexpr const char* kHeads = "attention.head_count";

// What is the same in all architectures, moved to the published names.
class Builder {
 public:
  explicit Builder(const GgufKeys& keys) : k_(keys) {}

  json build() {
    const GgufArchName& names = k_.names();
    out_["architectures"] = {names.architecture};
    out_["model_type"] = names.model_type;
    out_["hidden_act"] = "silu";
    sizes();
    rope();
    publish_gguf_family(k_, out_);
    return out_;
  }

 private:
  void move_int(std::string_view from, const char* to) { out_[to] = k_.get_int(from); }

  void sizes() {
    const std::int64_t mtp = k_.get_int("nextn_predict_layers", 0);
    const std::int64_t blocks = k_.get_int("block_count");
    if (mtp < 0 || blocks <= mtp || blocks > static_cast<std::int64_t>(k_.tensors().size())) {
      throw Error("{}: {} blocks, {} of them for prediction, in {} tensors", k_.origin(), blocks, mtp, k_.tensors().size());
    }
    out_["num_hidden_layers"] = blocks - mtp;
    move_int("embedding_length", "hidden_size");
    out_["num_attention_heads"] = k_.get_nonzero(kHeads);
    const bool mixed = has_mamba(k_.arch()) || k_.arch() == GgufArch::kGemma4;  // a number for each layer
    const char* kv = k_.has("attention.head_count_kv") ? "attention.head_count_kv" : kHeads;
    out_["num_key_value_heads"] = mixed ? k_.get_each(kv, blocks).front() : k_.get_int(kv);
    if (has_mamba(k_.arch())) out_["num_key_value_heads"] = k_.get_nonzero(kv);
    if (k_.has("feed_forward_length")) out_["intermediate_size"] = k_.get_nonzero("feed_forward_length");
    move_int("context_length", "max_position_embeddings");
    out_["rms_norm_eps"] = k_.get_float("attention.layer_norm_rms_epsilon");
    if (k_.has("attention.key_length")) {
      move_int("attention.key_length", "head_dim");
    } else {
      const std::int64_t heads = out_["num_attention_heads"], dim = out_["hidden_size"];
      if (heads <= 0) throw Error("{}: {} is {}", k_.origin(), k_.key(kHeads), heads);
      out_["head_dim"] = dim / heads;
    }
    const bool same = !has_latent_attention(k_.arch());
    if (same && k_.has("attention.value_length") && k_.get_int("attention.value_length") != out_["head_dim"]) {
      throw Error("{}: values of {} beside keys of {} channels are not supported", k_.origin(), k_.get_int("attention.value_length"),
                  out_["head_dim"].get<std::int64_t>());
    }
    const SourceTensor* table = k_.find("token_embd.weight");
    if (table == nullptr) throw Error("{}: tensor token_embd.weight is missing", k_.origin());
    out_["vocab_size"] = table->extents.front();
    out_["tie_word_embeddings"] = k_.find("output.weight") == nullptr;
    out_["attention_bias"] = k_.find_ending(".attn_q.bias") != nullptr;
    out_["mlp_bias"] = k_.find_ending(".ffn_gate.bias") != nullptr;
    const bool dense = k_.arch() == GgufArch::kLlama || k_.arch() == GgufArch::kSmolLm3 || k_.arch() == GgufArch::kQwen2 ||
                       k_.arch() == GgufArch::kQwen3 || k_.arch() == GgufArch::kGemma3 || k_.arch() == GgufArch::kQwen35;
    if (dense && k_.get_int("expert_count", 0) > 0) {
      throw Error("{}: {} with experts is not supported", k_.origin(), k_.names().file);
    }
  }

  void rope() {
    json p = {{"rope_type", "default"}};
    p["rope_theta"] = k_.get_float("rope.freq_base", 10000.0);
    if (k_.has("rope.dimension_count")) {
      const std::int64_t head_dim = out_["head_dim"], turned = k_.get_int("rope.dimension_count");
      if (head_dim <= 0 || turned <= 0) throw Error("{}: {} of {} channels turn", k_.origin(), turned, head_dim);
      p["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(head_dim);
    }
    const std::string scaling = k_.metadata().get_text(k_.key("rope.scaling.type"), "none");
    if (scaling == "linear" || scaling == "yarn") {
      p["rope_type"] = scaling;
      p["factor"] = k_.get_float("rope.scaling.factor");
      if (k_.has("rope.scaling.original_context_length")) {
        p["original_max_position_embeddings"] = k_.get_int("rope.scaling.original_context_length");
      }
      for (const auto& [from, to] : {std::pair{"attn_factor", "attention_factor"}, {"yarn_attn_factor", "attention_factor"},
                                     {"yarn_beta_fast", "beta_fast"}, {"yarn_beta_slow", "beta_slow"}}) {
        const std::string key = std::string("rope.scaling.") + from;
        if (k_.has(key)) p[to] = k_.get_float(key);
      }
      if (k_.has("rope.scaling.yarn_truncate")) p["truncate"] = k_.get_bool("rope.scaling.yarn_truncate", true);
    } else if (scaling != "none") {
      throw Error("{}: {} \"{}\" is not supported", k_.origin(), k_.key("rope.scaling.type"), scaling);
    }
    if (k_.has("rope.dimension_sections")) {
      GgufInts sections = k_.metadata().get_ints(k_.key("rope.dimension_sections"));
      if (sections.size() < 3) throw Error("{}: {} has {} entries", k_.origin(), k_.key("rope.dimension_sections"), sections.size());
      sections.resize(3);
      p["mrope_section"] = sections;
      p["mrope_interleaved"] = true;
    }
    if (const std::vector<float> values = gguf_rope_factors_of(k_); !values.empty() && k_.arch() != GgufArch::kGemma4) {
      for (const float f : values) {
        if (f > 1e9F) throw Error("{}: tensor {} holds {}", k_.origin(), kGgufRopeFactors, f);
      }
      p["rope_type"] = "factors";
      p["factors"] = values;
    }
    out_["rope_parameters"] = p;
  }

  const GgufKeys& k_;
  json out_ = json::object();
};

json sampling_of(const GgufMetadata& m) {
  json out = json::object();
  for (const auto& [from, to] : {std::pair{"general.sampling.temp", "temperature"}, {"general.sampling.top_p", "top_p"},
                                 {"general.sampling.min_p", "min_p"}, {"general.sampling.penalty_repeat", "repetition_penalty"}}) {
    if (m.has(from)) out[to] = m.get_float(from);
  }
  if (m.has("general.sampling.top_k")) out["top_k"] = m.get_int("general.sampling.top_k");
  return out;
}

}  // namespace

GgufInts GgufKeys::get_each(std::string_view name, std::int64_t layers) const {
  if (!is_list(name)) return GgufInts(static_cast<std::size_t>(layers), get_int(name));
  GgufInts list = file_.metadata.get_ints(key(name));
  if (static_cast<std::int64_t>(list.size()) < layers) {
    throw Error("{}: {} has {} entries for {} layers", origin(), key(name), list.size(), layers);
  }
  list.resize(static_cast<std::size_t>(layers));
  return list;
}

std::int64_t GgufKeys::get_nonzero(std::string_view name) const {
  if (!is_list(name)) return get_int(name);
  std::int64_t found = 0;
  for (const std::int64_t n : file_.metadata.get_ints(key(name))) {
    if (n == 0) continue;
    if (found != 0 && n != found) throw Error("{}: key {} differs from layer to layer, which is not supported", origin(), key(name));
    found = n;
  }
  return found;
}

const SourceTensor* GgufKeys::find(std::string_view name) const {
  const auto it = std::find_if(file_.tensors.begin(), file_.tensors.end(), [&](const SourceTensor& t) { return t.name == name; });
  return it == file_.tensors.end() ? nullptr : &*it;
}

const SourceTensor* GgufKeys::find_ending(std::string_view end) const {
  const auto it = std::find_if(file_.tensors.begin(), file_.tensors.end(), [&](const SourceTensor& t) { return t.name.ends_with(end); });
  return it == file_.tensors.end() ? nullptr : &*it;
}

std::vector<float> gguf_rope_factors_of(const GgufKeys& keys) {
  const SourceTensor* factors = keys.find(kGgufRopeFactors);
  if (factors == nullptr) return {};
  if (factors->dtype != DType::kF32 || factors->extents.size() != 1) {
    throw Error("{}: tensor {} {} of {}: expected a vector of f32", factors->file, factors->name, to_string(factors->extents),
                name(factors->dtype));
  }
  std::vector<float> values(static_cast<std::size_t>(factors->extents[0]));
  std::memcpy(values.data(), factors->bytes.data(), factors->bytes.size());
  for (const float f : values) {
    if (!(f > 0)) throw Error("{}: tensor {} holds {}", factors->file, factors->name, f);
  }
  return values;
}

std::vector<int> gguf_end_tokens(const GgufMetadata& m) {
  const GgufTexts* tokens = m.has("tokenizer.ggml.tokens") ? &m.get_texts("tokenizer.ggml.tokens") : nullptr;
  const std::size_t count = tokens == nullptr ? 0 : tokens->size();
  std::vector<int> ends;
  const auto add = [&](std::int64_t id) {
    if (id < 0 || id >= static_cast<std::int64_t>(count)) return;  // files write -1 for none
    if (std::find(ends.begin(), ends.end(), static_cast<int>(id)) == ends.end()) ends.push_back(static_cast<int>(id));
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (m.has(key)) add(m.get_int(key));
  }
  // Files name one token although a model may end by others (Llama 3, Qwen): those are known by their spelling.
  static constexpr std::array<std::string_view, 7> kEnds = {"<|eot_id|>",  "<|eom_id|>", "<|im_end|>",    "<|endoftext|>",
                                                            "<|end|>", "<end_of_turn>", "<|end_of_text|>"};
  if (!m.has("tokenizer.ggml.token_type")) return ends;
  const GgufInts types = m.get_ints("tokenizer.ggml.token_type");
  constexpr std::int64_t kControl = 3;
  for (std::size_t i = 0; i < std::min(count, types.size()); ++i) {
    if (types[i] == kControl && std::find(kEnds.begin(), kEnds.end(), (*tokens)[i]) != kEnds.end()) add(static_cast<std::int64_t>(i));
  }
  return ends;
}

ModelConfig config_of_gguf(const GgufContent& file) {
  const GgufMetadata& m = file.metadata;
  json config = Builder(GgufKeys(file, arch_of(m))).build();
  config["eos_token_id"] = gguf_end_tokens(m);
  if (m.has("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = m.get_int("tokenizer.ggml.bos_token_id");
  return {Json::parse(config.dump(), m.origin()), Json::parse(sampling_of(m).dump(), m.origin())};
}

}  // namespace strata
