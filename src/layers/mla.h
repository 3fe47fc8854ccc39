// Mla: multi-head latent attention (DeepSeek-AI 2024). The cache holds one latent and one rotary key a token
// for all heads; the matrices that would expand the latent are absorbed into the queries and the outputs.
#pragma once

#include <memory>

#include "layers/linear.h"
#include "layers/transformer_layer.h"

namespace strata {

struct MlaConfig {
  int heads = 0;
  int latent = 0;                  // R: channels of the latent
  int nope_dim = 0, rope_dim = 0;  // of a query head: not rotated | rotated
  int value_dim = 0;               // of a head's output
  float scale = 0;                 // of q . k
  float latent_eps = 1e-6F;        // of the norms of both latents
};

struct MlaWeights {
  Sublayer sublayer;
  Linear in;                         // [(query latent or queries | key-value latent | rotary key), D]
  Tensor query_norm;                 // [query latent]; empty when queries are projected straight
  Linear query_up;                   // [H * (nope | rope), query latent], or empty likewise
  Tensor latent_norm;                // [R]
  ExpertLinear absorbed_key;         // [H, R, nope]: takes a query head into the latent's space
  ExpertLinear absorbed_value;       // [H, value_dim, R]: takes the attended latent to the head's output
  Linear out;                        // [D, H * value_dim]
  std::shared_ptr<const Rope> rope;  // offset R
};

class Mla final : public TransformerLayer {
 public:
  Mla(const MlaConfig& config, MlaWeights weights);
  StateSpec state() const override;
  void linears(Linears& all) const override { all.add(w_.in, w_.query_up, w_.absorbed_key, w_.absorbed_value, w_.out); }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  MlaConfig config_;
  MlaWeights w_;
};

}  // namespace strata
