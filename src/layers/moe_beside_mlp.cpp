#include "layers/moe_beside_mlp.h"

namespace strata {

void MoeBesideMlp::forward(Residual& x, const Batch& batch, const Memory&, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const auto normed = [&](Tensor from, const Norm& norm) {
    const Tensor to = ops.make(from.shape());
    ops.rms_norm(to, from, norm.weight, norm.eps);
    return to;
  };
  const Tensor hidden = w_.dense.hidden(x.enter(w_.sublayer), batch, ops);  // [T, F]
  const Tensor dense = normed(w_.dense.down(hidden, batch, ops), w_.dense_post);

  const Tensor stream = x.flush(), out = x.output();  // [T, D]
  mix_experts(out, normed(stream, w_.router_norm), {.out = normed(stream, w_.experts_norm)}, w_.config, w_.experts,
              batch, ops);
  ops.rms_norm(out, out, w_.experts_post.weight, w_.experts_post.eps);
  ops.add(out, dense, 1);
  x.leave(w_.sublayer);
}

}  // namespace strata
