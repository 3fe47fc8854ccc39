#include "layers/moe.h"

namespace strata {

void mix_experts(Tensor out, Tensor routed_by, Tensor x, const MoeConfig& config, const MoeWeights& w,
                 const Batch& batch, Ops& ops) {
  const Tensor routed = w.router(routed_by, batch, ops, DType::kF32);  // [T, E or E + 1]
  const Routing routing = ops.route({.logits = routed.columns(0, config.experts),
                                     .bias = w.choice_bias,
                                     .scoring = config.scoring,
                                     .groups = config.groups,
                                     .top_groups = config.top_groups,
                                     .normalise = config.normalise,
                                     .scale = config.scale,
                                     .expert_scale = w.expert_scale},
                                    config.top_k);
  const bool latent = !w.latent_in.empty();
  const Tensor in = latent ? w.latent_in(x, batch, ops) : x;
  Tensor hidden;  // [T*k, F]
  if (config.gated) {
    hidden = w.in.glu(in, routing, config.activation, config.limit, batch, ops);
  } else {
    hidden = w.in(in, routing, batch, ops);
    ops.activate(hidden, config.activation);
  }
  const Tensor y = w.down(hidden, routing, batch, ops);  // [T*k, D or L]

  Tensor shared, gate;
  if (w.shared) {
    shared = w.shared->down(w.shared->hidden(x, batch, ops), batch, ops);  // [T, D]
    if (w.router.outputs() > config.experts) gate = routed.columns(config.experts, 1);
  }
  if (!latent) return ops.combine(out, y, routing, shared, gate);
  STRATA_CHECK(gate.empty(), "latent experts with a gated shared expert");
  const Tensor mixed = ops.make({x.rows(), y.row_size()});
  ops.combine(mixed, y, routing, {}, {});
  w.latent_out(out, mixed, batch, ops);
  if (!shared.empty()) ops.add(out, shared, 1);
}

void Moe::forward(Residual& x, const Batch& batch, const Memory&, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const Tensor h = x.enter(w_.sublayer);  // [T, D]
  mix_experts(x.output(), h, h, config_, w_, batch, ops);
  x.leave(w_.sublayer);
}

}  // namespace strata
