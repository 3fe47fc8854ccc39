#include "layers/residual.h"

namespace strata {

Residual::Residual(Tensor x, Ops& ops) : ops_(ops), x_(x), normed_(ops.make(x.shape())), output_(ops.make(x.shape())) {}

AddNorm Residual::entry(const Sublayer& sublayer) { return take(sublayer.norm); }

Tensor Residual::enter(const Sublayer& sublayer) {
  const AddNorm norm = entry(sublayer);
  ops_.normalise(norm);
  return norm.out;
}

void Residual::leave(const Sublayer& sublayer) {
  if (sublayer.post) ops_.rms_norm(output_, output_, sublayer.post->weight, sublayer.post->eps);
  pending_ = true;
  pending_scale_ = sublayer.scale;
}

Tensor Residual::flush() {
  if (pending_) ops_.add(x_, output_, pending_scale_);
  pending_ = false;
  return x_;
}

Tensor Residual::finish(const Norm& norm) {
  ops_.normalise(take(norm));
  return normed_;
}

AddNorm Residual::take(const Norm& norm) {
  const Tensor delta = pending_ ? output_ : Tensor{};
  pending_ = false;
  return {.out = normed_, .x = x_, .delta = delta, .scale = pending_scale_, .weight = norm.weight, .eps = norm.eps};
}

}  // namespace strata
