// NgramEmbedding: features of hashed n-grams added to every residual stream (Qwen4-Exp's per-layer
// embedding).
#pragma once

#include "layers/linear.h"
#include "layers/transformer_layer.h"

namespace strata {

struct NgramEmbeddingConfig {
  int streams = 0, dim = 0;  // S, D
  int n = 0, heads = 0;      // grams of 2 to n tokens, hashes of each
  int end_token = 0;
  std::array<std::int64_t, 4> multipliers = {};
  std::array<std::int64_t, 32> sizes = {}, offsets = {};
};

struct NgramEmbeddingWeights {
  Weight table;                          // [rows, embedding / ((n-1)*heads)]
  Linear key, value;                     // [S*D, embedding], [D, embedding]
  Norm key_norm, query_norm, conv_norm;  // [S, D]
  Tensor conv;                           // [S*D, width], gaps between taps filled with zeros
};

// x_s += g_s + silu(conv(norm(g)))_s with g_s = gate(norm(key(e))_s . norm(x)_s) * value(e), e the row's
// n-gram embeddings. Keeps the convolution's window and the last n - 1 tokens of each sequence.
class NgramEmbedding final : public TransformerLayer {
 public:
  NgramEmbedding(const NgramEmbeddingConfig& config, NgramEmbeddingWeights weights)
      : config_(config), w_(std::move(weights)) {}
  StateSpec state() const override;
  void linears(Linears& all) const override { all.add(w_.key, w_.value); }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  NgramEmbeddingConfig config_;
  NgramEmbeddingWeights w_;
};

}  // namespace strata
