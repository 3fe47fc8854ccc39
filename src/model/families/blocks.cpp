#include "model/families/blocks.h"

#include <cmath>
#include <map>

#include "base/error.h"

namespace strata {

TextConfig::TextConfig(const Json& config)
    : vocab(config.get_int("vocab_size")),
      dim(config.get_int("hidden_size")),
      layers(config.has("num_hidden_layers") ? config.get_int("num_hidden_layers")
                                             : static_cast<int>(config.at("layers_block_type").size())),
      max_context(config.get_int("max_position_embeddings", 0)),
      heads(config.get_int("num_attention_heads")),
      kv_heads(config.get_int("num_key_value_heads", heads)),
      head_dim(config.get_int("head_dim", heads > 0 ? dim / heads : 0)),
      ffn(config.get_int("intermediate_size", 0)),
      eps(static_cast<float>(config.get_float("rms_norm_eps", 1e-6))),
      activation(activation_of(config)) {
  for (const auto& [what, value] : {std::pair{"vocab_size", vocab},
                                    {"hidden_size", dim},
                                    {"num_hidden_layers", layers},
                                    {"num_attention_heads", heads},
                                    {"num_key_value_heads", kv_heads},
                                    {"head_dim", head_dim}}) {
    if (value <= 0) throw Error("{}: {} is {}", config.origin(), what, value);
  }
  if (heads % kv_heads != 0)
    throw Error("{}: {} heads over {} key-value heads", config.origin(), heads, kv_heads);
}

Activation activation_of(const Json& config, std::string_view key) {
  static const std::map<std::string, Activation> names = {
      {"silu", Activation::kSilu},         {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},         {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh}, {"relu2", Activation::kRelu2},
      {"sigmoid", Activation::kSigmoid}};
  const std::string name = config.get_string(key, "silu");
  const auto found = names.find(name);
  if (found == names.end()) throw Error("{}: {} \"{}\" is not known", config.origin(), key, name);
  return found->second;
}

std::vector<std::string> layer_types(const Json& config) {
  if (!config.has("layer_types")) return {};
  std::vector<std::string> types = config.get_strings("layer_types");
  const auto layers = static_cast<std::size_t>(config.get_int("num_hidden_layers"));
  if (types.size() != layers)
    throw Error("{}: layer_types names {} layers of {}", config.origin(), types.size(), layers);
  return types;
}

int window_of(const Json& config, int layer) {
  if (!config.has("sliding_window") || !config.get_bool("use_sliding_window", true)) return 0;
  const int window = config.get_int("sliding_window");
  const std::vector<std::string> types = layer_types(config);
  if (!types.empty()) return types[static_cast<std::size_t>(layer)] == "sliding_attention" ? window : 0;
  return layer >= config.get_int("max_window_layers", 0) ? window : 0;
}

Ffn load_swiglu(const Weights& w, std::int64_t ffn, std::int64_t dim, Activation activation, bool bias) {
  return {.in = w.linear({{.name = "gate_proj", .outputs = ffn, .bias = bias},
                          {.name = "up_proj", .outputs = ffn, .bias = bias}},
                         dim),
          .down = w.linear({{.name = "down_proj", .outputs = dim, .bias = bias}}, ffn),
          .activation = activation};
}

void load_experts(MoeWeights& to, const Weights& w, int experts, std::int64_t ffn, std::int64_t dim) {
  const Weights e = w.at("experts");
  to.in = e.experts(experts, {{.name = "gate_proj", .outputs = ffn}, {.name = "up_proj", .outputs = ffn}},
                    "gate_up_proj", dim);
  to.down = e.experts(experts, {{.name = "down_proj", .outputs = dim}}, "down_proj", ffn);
}

void load_ends(Model& model, const Weights& w, const TextConfig& config, float norm_add,
               const EndNames& names) {
  model.vocab_size = config.vocab;
  model.hidden_size = config.dim;
  model.max_context = config.max_context;
  model.embedding_name = w.full(names.embedding);
  model.embedding = w.table(names.embedding, config.vocab, config.dim);
  if (!names.norm.empty()) model.norm = w.norm(names.norm, config.dim, config.eps, norm_add);
  const bool own = w.has(names.head + ".weight");
  if (w.config().get_bool("tie_word_embeddings", !own)) {
    if (own) w.skip(names.head + ".weight");
    model.head = std::make_shared<const Linear>(
        model.embedding, Tensor{}, std::vector<LinearPart>{{.name = names.head, .outputs = config.vocab}});
  } else {
    model.head =
        std::make_shared<const Linear>(w.linear({{.name = names.head, .outputs = config.vocab}}, config.dim));
  }
}

void add_layer(Model& model, int block, std::string_view kind, std::unique_ptr<TransformerLayer> layer) {
  model.layers.push_back({"layers." + std::to_string(block) + "." + std::string(kind), std::move(layer)});
}

}  // namespace strata
