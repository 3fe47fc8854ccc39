#include "layers/linear.h"

namespace strata {

namespace {

// What the batch's adapters add to a matrix; null when every row is base or none of them adds to it.
const LoraTable* adapters_of(const void* matrix, const Batch& batch) {
  return batch.adapters.empty() ? nullptr : batch.lora->find(matrix);
}

}  // namespace

bool Linear::adapted(const Batch& batch) const { return adapters_of(this, batch) != nullptr; }
bool ExpertLinear::adapted(const Batch& batch) const { return adapters_of(this, batch) != nullptr; }

void Linear::operator()(Tensor out, Tensor x, const Batch& batch, Ops& ops) const {
  ops.linear(out, x, *weight_, bias_);
  if (const LoraTable* table = adapters_of(this, batch)) ops.lora(out, x, *table, batch.adapters);
}

Tensor Linear::operator()(Tensor x, const Batch& batch, Ops& ops) const {
  return (*this)(x, batch, ops, ops.activation());
}

Tensor Linear::operator()(Tensor x, const Batch& batch, Ops& ops, DType dtype) const {
  const Tensor out = ops.make({x.rows(), outputs()}, dtype);
  (*this)(out, x, batch, ops);
  return out;
}

Tensor Linear::operator()(const AddNorm& x, const Batch& batch, Ops& ops) const {
  const Tensor out = ops.make({x.out.rows(), outputs()});
  ops.norm_linear(out, x, *weight_, bias_);
  if (const LoraTable* table = adapters_of(this, batch)) ops.lora(out, x.out, *table, batch.adapters);
  return out;
}

Tensor Linear::glu(Tensor x, Activation activation, float limit, const Batch& batch, Ops& ops) const {
  const Tensor out = ops.make({x.rows(), outputs() / 2});
  if (!adapted(batch)) {
    ops.linear_glu(out, x, *weight_, bias_, activation, limit);
  } else {
    ops.glu(out, (*this)(x, batch, ops), activation, limit);
  }
  return out;
}

Tensor ExpertLinear::operator()(Tensor x, const Routing& routing, const Batch& batch, Ops& ops) const {
  const Tensor out = ops.make({routing.expert.elements(), outputs()});
  ops.expert_linear(out, x, routing, weight_, bias_);
  if (const LoraTable* table = adapters_of(this, batch))
    ops.expert_lora(out, x, routing, *table, batch.adapters);
  return out;
}

Tensor ExpertLinear::glu(Tensor x, const Routing& routing, Activation activation, float limit,
                         const Batch& batch, Ops& ops) const {
  const Tensor out = ops.make({routing.expert.elements(), outputs() / 2});
  if (!adapted(batch)) {
    ops.expert_linear_glu(out, x, routing, weight_, bias_, activation, limit);
  } else {
    ops.glu(out, (*this)(x, routing, batch, ops), activation, limit);
  }
  return out;
}

}  // namespace strata
