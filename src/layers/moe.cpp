#include "layers/moe.h"

namespace strata {

void Moe::forward(Residual& x, const Batch& batch, const Memory&, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const Tensor h = x.enter(w_.sublayer);  // [T, D]

  const Tensor logits = w_.router(h, batch, ops, DType::kF32);  // [T, E]
  const Routing routing = ops.route({.logits = logits, .bias = w_.choice_bias, .scoring = config_.scoring,
                                     .groups = config_.groups, .top_groups = config_.top_groups,
                                     .normalise = config_.normalise, .scale = config_.scale}, config_.top_k);
  const Tensor in = w_.in(h, routing, batch, ops);  // [T*k, 2F] or [T*k, F]
  Tensor hidden = in;
  if (config_.gated) {
    hidden = ops.make({in.rows(), in[1] / 2});
    ops.glu(hidden, in, config_.activation, config_.limit);
  } else {
    ops.activate(hidden, config_.activation);
  }
  const Tensor y = w_.down(hidden, routing, batch, ops);  // [T*k, D]

  Tensor shared, gate;
  if (w_.shared) {
    shared = w_.shared->down(w_.shared->hidden(h, batch, ops), batch, ops);  // [T, D]
    if (!w_.shared_gate.empty()) gate = w_.shared_gate(h, batch, ops);       // [T, 1]
  }
  ops.combine(x.output(), y, routing, shared, gate);
  x.leave(w_.sublayer);
}

}  // namespace strata
