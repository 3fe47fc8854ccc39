// MoeBesideMlp: a dense feed-forward and a mixture of experts over the same stream, each between norms of its
// own (gemma4).
#pragma once

#include "layers/mlp.h"
#include "layers/moe.h"

namespace strata {

// x += post(dense_post(dense(norm(x))) + experts_post(experts(experts_norm(x), chosen by router_norm(x)))).
struct MoeBesideMlpWeights {
  Sublayer sublayer;  // norm of the dense input, post norm of the sum
  Ffn dense;
  Norm dense_post;
  Norm router_norm, experts_norm, experts_post;
  MoeConfig config;
  MoeWeights experts;  // its own sublayer is not used
};

class MoeBesideMlp final : public TransformerLayer {
 public:
  explicit MoeBesideMlp(MoeBesideMlpWeights weights) : w_(std::move(weights)) {}
  void linears(Linears& all) const override {
    w_.dense.linears(all);
    w_.experts.linears(all);
  }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  MoeBesideMlpWeights w_;
};

}  // namespace strata
