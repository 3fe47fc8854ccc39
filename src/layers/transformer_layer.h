// TransformerLayer: the contract every layer meets, whatever it mixes and whatever it remembers.
#pragma once

#include "layers/linear.h"
#include "layers/residual.h"
#include "ops/batch.h"
#include "ops/memory.h"
#include "ops/ops.h"

namespace strata {

// One sublayer: attention, delta net, SwiGLU, MoE are each one. Immutable after load; all change is in `memory`.
// forward() reads its input from the residual stream, adds its output to it, and keeps what it must in memory, for every
// row of the batch, be it prefill, chunk, decode or verify: only the batch's numbers differ.
class TransformerLayer {
 public:
  virtual ~TransformerLayer() = default;
  virtual StateSpec state() const { return Stateless{}; }
  // Adds the matrices that adapters may add to; their addresses are those that forward() uses.
  virtual void linears(Linears&) const {}
  virtual void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const = 0;
};

}  // namespace strata
