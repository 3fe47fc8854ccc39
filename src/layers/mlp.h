// Mlp: the dense feed-forward sublayer, gated (SwiGLU, GeGLU) or plain.
#pragma once

#include "layers/linear.h"
#include "layers/transformer_layer.h"

namespace strata {

// A feed-forward network by itself: down(act(gate) * up), or down(act(in)) when not gated.
struct Ffn {
  Linear in;          // [(gate | up), D], or [F, D] when not gated
  Linear down;        // [D, F]
  Activation activation = Activation::kSilu;
  bool gated = true;
  float limit = 0;    // of kClampedSwiGlu

  // x [T, D] -> the input of `down` [T, F], in scratch.
  Tensor hidden(Tensor x, const Batch& batch, Ops& ops) const;
  void linears(Linears& all) const { all.add(in, down); }
};

class Mlp final : public TransformerLayer {
 public:
  Mlp(Sublayer sublayer, Ffn ffn) : sublayer_(std::move(sublayer)), ffn_(std::move(ffn)) {}
  void linears(Linears& all) const override { ffn_.linears(all); }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  Sublayer sublayer_;
  Ffn ffn_;
};

}  // namespace strata
