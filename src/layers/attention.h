// Attention: grouped-query softmax attention over paged keys and values, with what the families vary.
#pragma once

#include <memory>
#include <optional>

#include "layers/linear.h"
#include "layers/transformer_layer.h"

namespace strata {

struct AttentionConfig {
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;          // of q . k, usually 1 / sqrt(head_dim)
  int window = 0;           // 0 = all
  int skip = 0;             // leading keys nobody sees (MTP heads)
  float softcap = 0;
  bool gated = false;       // output *= sigmoid(gate), the gate projected beside q
};

// Sparse attention (QSA): rows see the best of all earlier blocks of tokens, and what follows the last of them. Their
// queries and keys are projected behind q, k and v: (index q [heads * dim] | index k [dim]).
struct Indexer {
  int heads = 0, dim = 0;
  int block = 0;            // tokens
  int most = 0;             // blocks a row sees
  Tensor q_norm, k_norm;    // [dim]
};

struct AttentionWeights {
  Sublayer sublayer;
  Linear qkv;               // [(q | gate if gated | k | v | index q, index k if sparse), D]
  Linear out;               // [D, heads * head_dim]
  Tensor q_norm, k_norm, v_norm;  // [head_dim] or empty
  Tensor q_row_norm, k_row_norm;  // [heads * head_dim]: over all heads of a row at once, or empty
  float norm_eps = 1e-6F;
  Tensor sinks;             // [heads] or empty
  std::optional<Indexer> indexer;    // of sparse attention
  std::shared_ptr<const Rope> rope;  // null = no positions (NoPE)
};

class Attention final : public TransformerLayer {
 public:
  Attention(const AttentionConfig& config, AttentionWeights weights);
  StateSpec state() const override;
  void linears(Linears& all) const override { all.add(w_.qkv, w_.out); }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  AttentionConfig config_;
  AttentionWeights w_;
};

}  // namespace strata
