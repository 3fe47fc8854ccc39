// Blocks: the parts that text models of many families share, from configuration and weights to layers.
#pragma once

#include <string>
#include <vector>

#include "layers/attention.h"
#include "layers/mlp.h"
#include "layers/moe.h"
#include "model/model.h"
#include "model/weights.h"

namespace strata {

// What nearly every config.json of a text model says, under its usual names.
struct TextConfig {
  explicit TextConfig(const Json& config);

  int vocab, dim, layers, max_context;
  int heads, kv_heads, head_dim;
  int ffn;  // 0 when the model has no dense feed-forward
  float eps;
  Activation activation;  // of the feed-forward
};

Activation activation_of(const Json& config, std::string_view key = "hidden_act");

// "full_attention", "sliding_attention", "linear_attention" ...: `layer_types`; empty when the configuration
// has none.
std::vector<std::string> layer_types(const Json& config);

// The sliding window of layer i; 0 = it sees everything.
int window_of(const Json& config, int layer);

// gate_proj, up_proj, down_proj under `w`.
Ffn load_swiglu(const Weights& w, std::int64_t ffn, std::int64_t dim, Activation activation,
                bool bias = false);

// The routed experts `experts.*` under `w` in any layout: the fields `in` and `down`.
void load_experts(MoeWeights& to, const Weights& w, int experts, std::int64_t ffn, std::int64_t dim);

// What the ends are called; no norm when the family ends otherwise.
struct EndNames {
  std::string embedding = "embed_tokens", norm = "norm", head = "lm_head";
};

// Embedding, final norm and head, tied or not; vocabulary, width and context of the model.
void load_ends(Model& model, const Weights& w, const TextConfig& config, float norm_add = 0,
               const EndNames& names = {});
inline void load_ends(Model& model, const Weights& w, const TextConfig& config, const EndNames& names) {
  load_ends(model, w, config, 0, names);
}

// The head that an MTP head of `model`, whose ends are loaded, drafts with: a copy as the options say, or the
// model's own. Drafts are only guesses, so a coarser type costs acceptance and no answer.
std::shared_ptr<const Linear> draft_head(const Model& model, const Weights& w, const EndNames& names = {});

void add_layer(Model& model, int block, std::string_view kind, std::unique_ptr<TransformerLayer> layer);

}  // namespace strata
