#include "layers/mamba2.h"

namespace strata {

Mamba2::Mamba2(const Mamba2Config& config, Mamba2Weights weights) : config_(config), w_(std::move(weights)) {
  STRATA_CHECK(config.heads % config.groups == 0, "mamba2: {} heads in {} groups", config.heads,
               config.groups);
  STRATA_CHECK(inner() % config.norm_groups == 0, "mamba2: {} channels in {} norm groups", inner(),
               config.norm_groups);
  STRATA_CHECK(w_.in.outputs() == inner() + channels() + config.heads, "in_proj rows: {}", w_.in.outputs());
  STRATA_CHECK(w_.out.inputs() == inner(), "out_proj inputs: {}, heads * head_dim {}", w_.out.inputs(),
               inner());
  w_.norm.weight = w_.norm.weight.reshape({config.norm_groups, inner() / config.norm_groups});
}

StateSpec Mamba2::state() const {
  return Recurrent{.tensors = {Shape{channels(), config_.conv_width - 1},
                               Shape{config_.heads, config_.head_dim, config_.state_dim}},
                   .tape = {channels(), channels() + config_.heads}};
}

void Mamba2::forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const auto& state = std::get<StateView>(memory);
  const bool lazy = !batch.tape.empty();
  const std::int64_t T = batch.shape.rows, C = channels(), I = inner(), H = config_.heads,
                     P = config_.head_dim, G = config_.norm_groups;

  const Tensor in = w_.in(x.entry(w_.sublayer), batch, ops);  // [T, (gate | x | B | C | dt)]
  const Tensor xbc = ops.make({T, C});
  ops.causal_conv({.out = xbc,
                   .x = in.columns(I, C),
                   .weight = w_.conv,
                   .bias = w_.conv_bias,
                   .state = state.tensors[0],
                   .tape = lazy ? state.tapes[0] : Tensor{}},
                  batch);
  const Tensor out = ops.make({T, H, P});
  ops.ssd({.out = out,
           .xbc = xbc,
           .dt = in.columns(I + C, H),
           .a_log = w_.a_log,
           .dt_bias = w_.dt_bias,
           .d = w_.d,
           .dt_min = config_.dt_min,
           .dt_max = config_.dt_max,
           .heads = config_.heads,
           .head_dim = config_.head_dim,
           .groups = config_.groups,
           .state_dim = config_.state_dim,
           .state = state.tensors[1],
           .tape = lazy ? state.tapes[1] : Tensor{}},
          batch);

  const Tensor grouped = out.reshape({T, G, I / G}), gate = in.columns(0, I).reshape({T, G, I / G});
  ops.gated_norm({.out = grouped,
                  .x = grouped,
                  .gate = gate,
                  .weight = w_.norm.weight,
                  .eps = w_.norm.eps,
                  .gate_first = true});
  w_.out(x.output(), out.reshape({T, I}), batch, ops);
  x.leave(w_.sublayer);
}

}  // namespace strata
