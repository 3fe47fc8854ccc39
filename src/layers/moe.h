// Moe: a mixture of experts with an optional shared expert.
#pragma once

#include <optional>

#include "layers/linear.h"
#include "layers/mlp.h"
#include "layers/transformer_layer.h"

namespace strata {

struct MoeConfig {
  int experts = 0, top_k = 0;
  Scoring scoring = Scoring::kSoftmax;
  int groups = 1, top_groups = 1;
  bool normalise = true;
  float scale = 1;                      // of the chosen weights
  Activation activation = Activation::kSilu;
  bool gated = true;                    // experts are gate | up, else one matrix
  float limit = 0;                      // of kClampedSwiGlu
};

struct MoeWeights {
  Sublayer sublayer;
  Linear router;                        // [E, D]; its bias is part of the logits. [E + 1, D]: the sigmoid of the last row's output
                                        //   scales the shared expert
  Tensor choice_bias;                   // [E] or empty: added for choosing only
  ExpertLinear in;                      // [E, (gate | up), D]
  ExpertLinear down;                    // [E, D, F]
  Tensor expert_scale;                  // [E] or empty: a factor of each expert's weight
  Linear latent_in, latent_out;         // [L, D], [D, L]: the experts work on a projection of x; empty = on x
  std::optional<Ffn> shared;

  void linears(Linears& all) const {
    all.add(router, in, down, latent_in, latent_out);
    if (shared) shared->linears(all);
  }
};

// out [T, D] = the chosen experts of x [T, D], and the shared one; the router looks at `routed_by` [T, D], or at x if that is
// empty.
void mix_experts(Tensor out, Tensor routed_by, const AddNorm& x, const MoeConfig& config, const MoeWeights& w, const Batch& batch,
                 Ops& ops);

class Moe final : public TransformerLayer {
 public:
  Moe(const MoeConfig& config, MoeWeights weights) : config_(config), w_(std::move(weights)) {}
  void linears(Linears& all) const override { w_.linears(all); }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  MoeConfig config_;
  MoeWeights w_;
};

}  // namespace strata
