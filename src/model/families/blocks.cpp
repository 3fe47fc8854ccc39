#include "model/families/blocks.h"

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "tensor/out_of_memory.h"

namespace strata {
namespace {

bool is_plain(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || type == DType::kF64;
}

// The matrix of the head: its own, or a tied model's embedding.
const std::string& head_matrix(const Weights& w, const EndNames& names) {
  return w.config().get_bool("tie_word_embeddings", !w.has(names.head + ".weight")) ? names.embedding
                                                                                    : names.head;
}

}  // namespace

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
  const std::string& matrix = head_matrix(w, names);
  const bool tied = matrix == names.embedding;
  if (tied && w.has(names.head + ".weight")) w.skip(names.head + ".weight");
  const std::optional<DType> type = w.options().head;
  if (type && !is_plain(w.stored_type(matrix)) && w.stored_type(matrix) != *type)
    throw Error("the head is {} in the checkpoint: it is not quantised again, as {}",
                name(w.stored_type(matrix)), name(*type));
  const std::vector<LinearPart> parts{{.name = names.head, .outputs = config.vocab}};
  if (tied && type) {
    model.head =
        std::make_shared<const Linear>(w.copy(matrix, config.vocab, config.dim, *type), Tensor{}, parts);
  } else if (tied) {
    model.head = std::make_shared<const Linear>(model.embedding, Tensor{}, parts);
  } else {
    model.head = std::make_shared<const Linear>(type ? w.linear(parts, config.dim, *type)
                                                     : w.linear(parts, config.dim));
  }
}

std::shared_ptr<const Linear> draft_head(const Model& model, const Weights& w, const EndNames& names) {
  constexpr std::size_t kWorth = std::size_t{64}
                                 << 20;  // bytes of a head: 16 us of an H200, of which half is saved
  const Linear& head = *model.head;
  const std::optional<DType> type = w.options().draft_head;
  const bool wish = w.options().draft_head_if_worth;
  const DType kept = head.weight().dtype;
  if (!type || kept == *type) return model.head;
  const std::string& matrix = head_matrix(w, names);
  for (const DType is : {kept, w.stored_type(matrix)}) {
    if (is_plain(is)) continue;
    if (wish) return model.head;
    throw Error(
        "the head is {} already: a copy for drafts would be quantised twice, as {} (--draft-head same)",
        name(is), name(*type));
  }
  if (wish && bytes_of(kept, head.outputs() * head.inputs()) < kWorth) return model.head;
  try {
    Weight copy = w.copy(matrix, head.outputs(), head.inputs(), *type);
    if (copy.dtype == kept) {  // activations in f32 want all weights in f32
      if (wish) return model.head;
      throw Error("a head for drafts is kept as {} here, as the head is, not as {} (--draft-head same)",
                  name(kept), name(*type));
    }
    log::info("drafts are made with a copy of the head in {}, {} MiB", name(copy.dtype),
              copy.storage.bytes() >> 20);
    return std::make_shared<const Linear>(std::move(copy), Tensor{}, head.parts());
  } catch (const OutOfMemory& e) {
    if (!wish) throw;
    log::warn("drafts are made with the model's own head: {}", e.what());
    return model.head;
  }
}

void add_layer(Model& model, int block, std::string_view kind, std::unique_ptr<TransformerLayer> layer) {
  model.layers.push_back({"layers." + std::to_string(block) + "." + std::string(kind), std::move(layer)});
}

}  // namespace strata
