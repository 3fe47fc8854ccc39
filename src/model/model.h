// Model: the one loop, embed -> layers -> norm -> head, over layers that it does not know.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/linear.h"
#include "layers/transformer_layer.h"

namespace strata {

// A layer and the name it has in `inspect` and in tests: "layers.3.attention", "layers.3.moe".
struct NamedLayer {
  std::string name;
  std::unique_ptr<TransformerLayer> layer;
};

// Input of a multi-token-prediction head: fc(concat(norm_e(embed(token)), norm_h(hidden))).
struct Fusion {
  Norm embedding_norm, hidden_norm;
  Linear fc;                       // [D, 2D]
};

struct ModelOutput {
  Tensor hidden;                   // [T, D] after the final norm
  Tensor logits;                   // [L, V] f32, of batch.logit_rows
};

// Immutable after load; any number of engines may share one. Tensors it returns are scratch of `ops`: hold a Scratch around the call.
class Model {
 public:
  // Called before layer i with the stream entering it [T, D], and with i = layers.size() after the last one.
  using Observer = std::function<void(std::size_t i, Tensor x)>;

  std::string architecture;        // "Qwen3_5MoeForCausalLM"
  int vocab_size = 0, hidden_size = 0, max_context = 0;

  std::string embedding_name;      // "embed_tokens"
  std::shared_ptr<const Weight> embedding;  // [V, D]
  float embedding_scale = 1;
  std::vector<NamedLayer> layers;
  Norm norm;
  std::shared_ptr<const Linear> head;       // [V, D]; shares the embedding's matrix when tied
  float logit_scale = 1, logit_softcap = 0;
  std::unique_ptr<const Fusion> fusion;     // of an MTP head: forward() then needs `hidden`
  std::unique_ptr<const Model> mtp;         // the model's own drafting head, or null
  std::shared_ptr<const void> storage;      // keeps what the weights view

  // The stream of a family with its own kind (hyper-connections); empty = Residual.
  std::function<std::unique_ptr<Residual>(Tensor x, Ops& ops)> make_residual;

  // The matrices of all layers and the head; the embedding is not among them. Without those of `mtp`: drafts are the base's.
  Linears linears() const;
  // What each layer keeps, in the order of `layers`; memory[i] is the pools' view for layer i.
  std::vector<StateSpec> states() const;

  // `hidden` [T, D]: for an MTP head, row t's is the target's (or its own) final hidden state of the token before row t.
  ModelOutput forward(const Batch& batch, std::span<const Memory> memory, Ops& ops, Tensor hidden = {},
                      const Observer& observer = {}) const;
};

}  // namespace strata
