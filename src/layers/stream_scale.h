// StreamScale: the stream times a number (gemma4 ends each block with one).
#pragma once

#include "layers/transformer_layer.h"

namespace strata {

class StreamScale final : public TransformerLayer {
 public:
  explicit StreamScale(float factor) : factor_(factor) {}
  void forward(Residual& x, const Batch&, const Memory&, Ops& ops) const override {
    ops.scale(x.flush(), factor_, 0);
  }

 private:
  float factor_;
};

}  // namespace strata
