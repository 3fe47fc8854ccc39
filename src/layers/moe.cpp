#include "layers/moe.h"

namespace strata {

namespace {

// Whether the whole is Ops::moe: gated experts on x itself, a shared expert like them, and no adapters, whose parts must be
// added to each product before the next.
bool is_one_op(const MoeConfig& config, const MoeWeights& w, const Batch& batch) {
  if (!config.gated || !w.latent_in.empty() || w.in.adapted(batch) || w.down.adapted(batch)) return false;
  if (!w.shared) return true;
  const Ffn& s = *w.shared;
  return s.gated && s.activation == config.activation && s.limit == config.limit && !s.in.adapted(batch) && !s.down.adapted(batch);
}

}  // namespace

void mix_experts(Tensor out, Tensor routed_by, const AddNorm& norm, const MoeConfig& config, const MoeWeights& w,
                 const Batch& batch, Ops& ops) {
  const Tensor x = norm.out;
  const bool one_op = is_one_op(config, w, batch), all_in_it = one_op && routed_by.empty() && !w.router.adapted(batch);
  const Tensor routed = ops.make({x.rows(), w.router.outputs()}, DType::kF32);  // [T, E or E + 1]
  if (!all_in_it) {
    ops.normalise(norm);
    w.router(routed, routed_by.empty() ? x : routed_by, batch, ops);
  }
  const RouteArgs route{.logits = routed.columns(0, config.experts),
                        .bias = w.choice_bias,
                        .scoring = config.scoring,
                        .groups = config.groups,
                        .top_groups = config.top_groups,
                        .normalise = config.normalise,
                        .scale = config.scale,
                        .expert_scale = w.expert_scale};
  Tensor gate;
  if (w.shared && w.router.outputs() > config.experts) gate = routed.columns(config.experts, 1);
  if (one_op) {
    MoeArgs args{.out = out, .x = x, .route = route, .k = config.top_k, .in = &w.in.weight(), .down = &w.down.weight(),
                 .in_bias = w.in.bias(), .down_bias = w.down.bias(), .shared_gate = gate, .activation = config.activation,
                 .limit = config.limit};
    if (all_in_it) {
      args.norm = norm, args.routed = routed;
      args.router = &w.router.weight(), args.router_bias = w.router.bias();
    }
    if (w.shared) {
      args.shared_in = &w.shared->in.weight(), args.shared_down = &w.shared->down.weight();
      args.shared_in_bias = w.shared->in.bias(), args.shared_down_bias = w.shared->down.bias();
    }
    return ops.moe(args);
  }

  const Routing routing = ops.route(route, config.top_k);
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
  const Tensor shared = w.shared ? w.shared->down(w.shared->hidden(x, batch, ops), batch, ops) : Tensor();  // [T, D]
  if (!latent) return ops.combine(out, y, routing, shared, gate);
  STRATA_CHECK(gate.empty(), "latent experts with a gated shared expert");
  const Tensor mixed = ops.make({x.rows(), y.row_size()});
  ops.combine(mixed, y, routing, {}, {});
  w.latent_out(out, mixed, batch, ops);
  if (!shared.empty()) ops.add(out, shared, 1);
}

void Moe::forward(Residual& x, const Batch& batch, const Memory&, Ops& ops) const {
  const Scratch scratch(ops.arena());
  mix_experts(x.output(), {}, x.entry(w_.sublayer), config_, w_, batch, ops);
  x.leave(w_.sublayer);
}

}  // namespace strata
