#include "layers/linear.h"

namespace strata {

void Linear::operator()(Tensor out, Tensor x, const Batch&, Ops& ops) const { ops.linear(out, x, *weight_, bias_); }

Tensor Linear::operator()(Tensor x, const Batch& batch, Ops& ops) const {
  return (*this)(x, batch, ops, ops.activation());
}

Tensor Linear::operator()(Tensor x, const Batch& batch, Ops& ops, DType dtype) const {
  const Tensor out = ops.make({x.rows(), outputs()}, dtype);
  (*this)(out, x, batch, ops);
  return out;
}

Tensor ExpertLinear::operator()(Tensor x, const Routing& routing, const Batch&, Ops& ops) const {
  const Tensor out = ops.make({routing.expert.elements(), outputs()});
  ops.expert_linear(out, x, routing, weight_, bias_);
  return out;
}

}  // namespace strata
