#include "layers/mlp.h"

namespace strata {

Tensor Ffn::hidden(Tensor x, const Batch& batch, Ops& ops) const {
  if (gated) return in.glu(x, activation, limit, batch, ops);
  const Tensor projected = in(x, batch, ops);
  ops.activate(projected, activation);
  return projected;
}

void Mlp::forward(Residual& x, const Batch& batch, const Memory&, Ops& ops) const {
  const Scratch scratch(ops.arena());
  ffn_.down(x.output(), ffn_.hidden(x.enter(sublayer_), batch, ops), batch, ops);
  x.leave(sublayer_);
}

}  // namespace strata
