#include "loader/gguf_config.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "loader/gguf_names.h"

namespace strata {
namespace {

using nlohmann::json;

const GgufArchName& arch_of(const GgufMetadata& m) {
  const std::string name = m.get_text("general.architecture");
  std::string known;
  for (const GgufArchName& a : kGgufArchs) {
    if (a.file == name) return a;
    known += (known.empty() ? "" : ", ") + std::string(a.file);
  }
  throw Error("{}: architecture \"{}\" is not supported in GGUF ({} are)", m.origin(), name, known);
}

const SourceTensor* find(const GgufContent& file, std::string_view name) {
  const auto it = std::find_if(file.tensors.begin(), file.tensors.end(), [&](const SourceTensor& t) { return t.name == name; });
  return it == file.tensors.end() ? nullptr : &*it;
}

// Keys of this architecture, moved to their published names.
class Builder {
 public:
  Builder(const GgufContent& file, const GgufArchName& arch) : file_(file), m_(file.metadata), arch_(arch) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_.file, name); }
  bool has(std::string_view name) const { return m_.has(key(name)); }
  std::int64_t get_int(std::string_view name) const { return m_.get_common_int(key(name)); }
  double get_float(std::string_view name) const { return m_.get_float(key(name)); }

  json build() {
    out_["architectures"] = {arch_.architecture};
    out_["model_type"] = arch_.model_type;
    out_["hidden_act"] = "silu";
    sizes();
    rope();
    if (is_moe(arch_.arch)) experts();
    if (is_hybrid(arch_.arch)) hybrid();
    if (arch_.arch == GgufArch::kGemma3) gemma();
    return out_;
  }

 private:
  void move_int(std::string_view from, const char* to) { out_[to] = get_int(from); }

  void sizes() {
    const std::int64_t mtp = has("nextn_predict_layers") ? get_int("nextn_predict_layers") : 0;
    const std::int64_t blocks = get_int("block_count");
    if (mtp < 0 || blocks <= mtp || blocks > static_cast<std::int64_t>(file_.tensors.size())) {
      throw Error("{}: {} blocks, {} of them for prediction, in {} tensors", m_.origin(), blocks, mtp, file_.tensors.size());
    }
    out_["num_hidden_layers"] = blocks - mtp;
    move_int("embedding_length", "hidden_size");
    move_int("attention.head_count", "num_attention_heads");
    move_int(has("attention.head_count_kv") ? "attention.head_count_kv" : "attention.head_count", "num_key_value_heads");
    if (has("feed_forward_length")) move_int("feed_forward_length", "intermediate_size");
    move_int("context_length", "max_position_embeddings");
    out_["rms_norm_eps"] = get_float("attention.layer_norm_rms_epsilon");
    if (has("attention.key_length")) {
      move_int("attention.key_length", "head_dim");
    } else {
      const std::int64_t heads = out_["num_attention_heads"], dim = out_["hidden_size"];
      if (heads <= 0) throw Error("{}: {} is {}", m_.origin(), key("attention.head_count"), heads);
      out_["head_dim"] = dim / heads;
    }
    if (has("attention.value_length") && get_int("attention.value_length") != out_["head_dim"]) {
      throw Error("{}: values of {} beside keys of {} channels are not supported", m_.origin(), get_int("attention.value_length"),
                  out_["head_dim"].get<std::int64_t>());
    }
    const SourceTensor* table = find(file_, "token_embd.weight");
    if (table == nullptr) throw Error("{}: tensor token_embd.weight is missing", m_.origin());
    out_["vocab_size"] = table->extents.front();
    out_["tie_word_embeddings"] = find(file_, "output.weight") == nullptr;
    out_["attention_bias"] = find(file_, "blk.0.attn_q.bias") != nullptr;
    out_["mlp_bias"] = find(file_, "blk.0.ffn_gate.bias") != nullptr;
    if (!is_moe(arch_.arch) && has("expert_count") && get_int("expert_count") > 0) {
      throw Error("{}: {} with experts is not supported", m_.origin(), arch_.file);
    }
  }

  void rope() {
    json p = {{"rope_type", "default"}};
    p["rope_theta"] = has("rope.freq_base") ? get_float("rope.freq_base") : 10000.0;
    if (has("rope.dimension_count")) {
      const std::int64_t head_dim = out_["head_dim"], turned = get_int("rope.dimension_count");
      if (head_dim <= 0 || turned <= 0) throw Error("{}: {} of {} channels turn", m_.origin(), turned, head_dim);
      p["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(head_dim);
    }
    const std::string scaling = m_.get_text(key("rope.scaling.type"), "none");
    if (scaling == "linear" || scaling == "yarn") {
      p["rope_type"] = scaling;
      p["factor"] = get_float("rope.scaling.factor");
      if (has("rope.scaling.original_context_length")) {
        p["original_max_position_embeddings"] = get_int("rope.scaling.original_context_length");
      }
      if (has("rope.scaling.attn_factor")) p["attention_factor"] = get_float("rope.scaling.attn_factor");
      if (has("rope.scaling.yarn_beta_fast")) p["beta_fast"] = get_float("rope.scaling.yarn_beta_fast");
      if (has("rope.scaling.yarn_beta_slow")) p["beta_slow"] = get_float("rope.scaling.yarn_beta_slow");
    } else if (scaling != "none") {
      throw Error("{}: {} \"{}\" is not supported", m_.origin(), key("rope.scaling.type"), scaling);
    }
    if (has("rope.dimension_sections")) {
      GgufInts sections = m_.get_ints(key("rope.dimension_sections"));
      if (sections.size() < 3) throw Error("{}: {} has {} entries", m_.origin(), key("rope.dimension_sections"), sections.size());
      sections.resize(3);
      p["mrope_section"] = sections;
      p["mrope_interleaved"] = true;
    }
    if (const SourceTensor* factors = find(file_, kGgufRopeFactors)) {
      if (factors->dtype != DType::kF32 || factors->extents.size() != 1) {
        throw Error("{}: tensor {} {} of {}: expected a vector of f32", factors->file, factors->name, to_string(factors->extents),
                    name(factors->dtype));
      }
      std::vector<float> values(static_cast<std::size_t>(factors->extents[0]));
      std::memcpy(values.data(), factors->bytes.data(), factors->bytes.size());
      for (const float f : values) {
        if (!(f > 0) || f > 1e9F) throw Error("{}: tensor {} holds {}", factors->file, factors->name, f);
      }
      p["rope_type"] = "factors";
      p["factors"] = values;
    }
    out_["rope_parameters"] = p;
  }

  void experts() {
    move_int("expert_count", "num_experts");
    move_int("expert_used_count", "num_experts_per_tok");
    move_int("expert_feed_forward_length", "moe_intermediate_size");
    out_["norm_topk_prob"] = true;
    if (has("expert_gating_func") && get_int("expert_gating_func") > 1) {
      throw Error("{}: {} {} is not supported", m_.origin(), key("expert_gating_func"), get_int("expert_gating_func"));
    }
    if (!is_hybrid(arch_.arch)) return;
    if (has("expert_shared_feed_forward_length")) {
      move_int("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    } else {
      move_int("feed_forward_length", "shared_expert_intermediate_size");
    }
  }

  void hybrid() {
    move_int("ssm.group_count", "linear_num_key_heads");
    move_int("ssm.time_step_rank", "linear_num_value_heads");
    move_int("ssm.state_size", "linear_key_head_dim");
    move_int("ssm.conv_kernel", "linear_conv_kernel_dim");
    const std::int64_t heads = out_["linear_num_value_heads"], inner = get_int("ssm.inner_size");
    if (heads <= 0 || inner % heads != 0) throw Error("{}: {} channels of {} value heads", m_.origin(), inner, heads);
    out_["linear_value_head_dim"] = inner / heads;
    out_["attn_output_gate"] = true;
    out_["mtp_num_hidden_layers"] = has("nextn_predict_layers") ? get_int("nextn_predict_layers") : 0;
    const std::int64_t layers = out_["num_hidden_layers"];
    const std::int64_t interval = has("full_attention_interval") ? get_int("full_attention_interval") : 4;
    if (interval <= 0) throw Error("{}: every {}th of {} layers attends", m_.origin(), interval, layers);
    const GgufInts recurrent = has("attention.recurrent_layers") ? m_.get_ints(key("attention.recurrent_layers")) : GgufInts{};
    if (!recurrent.empty() && static_cast<std::int64_t>(recurrent.size()) < layers) {
      throw Error("{}: {} names {} layers of {}", m_.origin(), key("attention.recurrent_layers"), recurrent.size(), layers);
    }
    json types = json::array();
    for (std::int64_t i = 0; i < layers; ++i) {
      const bool is_recurrent = recurrent.empty() ? (i + 1) % interval != 0 : recurrent[static_cast<std::size_t>(i)] != 0;
      types.push_back(is_recurrent ? "linear_attention" : "full_attention");
    }
    out_["layer_types"] = types;
  }

  // Local and global layers: the period, or which is which, may be missing as the first files did not write it.
  void gemma() {
    const std::int64_t layers = out_["num_hidden_layers"];
    out_["hidden_activation"] = "gelu_pytorch_tanh";
    // llama.cpp's rule: the largest one divides by its width per head, the others by the head's channels.
    constexpr std::int64_t kLargest = 62;  // layers
    out_["query_pre_attn_scalar"] = layers == kLargest ? out_["hidden_size"].get<std::int64_t>() / out_["num_attention_heads"].get<std::int64_t>()
                                                       : out_["head_dim"].get<std::int64_t>();
    if (has("final_logit_softcapping")) out_["final_logit_softcapping"] = get_float("final_logit_softcapping");
    const std::int64_t window = has("attention.sliding_window") ? get_int("attention.sliding_window") : 0;
    const std::string pattern = key("attention.sliding_window_pattern");
    const bool listed = m_.has(pattern) && std::get_if<std::int64_t>(m_.find(pattern)) == nullptr;
    const GgufInts list = listed ? m_.get_ints(pattern) : GgufInts{};
    const std::int64_t period = listed ? 1 : m_.get_int(pattern, 6);
    if (window < 0 || period <= 0 || (listed && static_cast<std::int64_t>(list.size()) < layers)) {
      throw Error("{}: {} does not fit {} layers with a window of {}", m_.origin(), pattern, layers, window);
    }
    json types = json::array();
    for (std::int64_t i = 0; i < layers; ++i) {
      const bool local = window > 0 && (listed ? list[static_cast<std::size_t>(i)] != 0 : (i + 1) % period != 0);
      types.push_back(local ? "sliding_attention" : "full_attention");
    }
    out_["layer_types"] = types;
    if (window > 0) out_["sliding_window"] = window;
    const json global = out_["rope_parameters"];
    json local = {{"rope_type", "default"}};
    local["rope_theta"] = has("rope.freq_base_swa") ? get_float("rope.freq_base_swa") : 10000.0;
    out_["rope_parameters"] = {{"full_attention", global}, {"sliding_attention", local}};
  }

  const GgufContent& file_;
  const GgufMetadata& m_;
  const GgufArchName& arch_;
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
  json config = Builder(file, arch_of(m)).build();
  config["eos_token_id"] = gguf_end_tokens(m);
  if (m.has("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = m.get_int("tokenizer.ggml.bos_token_id");
  return {Json::parse(config.dump(), m.origin()), Json::parse(sampling_of(m).dump(), m.origin())};
}

}  // namespace strata
