#include "layers/residual.h"

namespace strata {

Residual::Residual(Tensor x, Ops& ops) : ops_(ops), x_(x), normed_(ops.make(x.shape())), output_(ops.make(x.shape())) {}

Tensor Residual::enter(const Sublayer& sublayer) { return finish(sublayer.norm); }

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
  ops_.add_rms_norm(normed_, x_, pending_ ? output_ : Tensor{}, pending_scale_, norm.weight, norm.eps);
  pending_ = false;
  return normed_;
}

}  // namespace strata
