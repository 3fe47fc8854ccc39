#include "layers/gated_delta_net.h"

namespace strata {

GatedDeltaNet::GatedDeltaNet(const GatedDeltaNetConfig& config, GatedDeltaNetWeights weights)
    : config_(config), w_(std::move(weights)) {
  const int values = config.value_heads * config.value_dim;
  STRATA_CHECK(config.value_heads % config.key_heads == 0, "heads: value {}, key {}", config.value_heads, config.key_heads);
  STRATA_CHECK(w_.in.outputs() == channels() + values + 2 * config.value_heads, "in_proj rows: {}", w_.in.outputs());
  STRATA_CHECK(w_.out.inputs() == values, "out_proj inputs: {}, value heads * value_dim {}", w_.out.inputs(), values);
}

StateSpec GatedDeltaNet::state() const {
  return Recurrent{.tensors = {Shape{channels(), config_.conv_width - 1},
                               Shape{config_.value_heads, config_.key_dim, config_.value_dim}},
                   .tape = {channels(), channels() + 2 * config_.value_heads}};
}

void GatedDeltaNet::forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const auto& state = std::get<StateView>(memory);
  const bool lazy = !batch.tape.empty();
  const std::int64_t T = batch.shape.rows, C = channels(), Hv = config_.value_heads, V = config_.value_dim;

  const Tensor in = w_.in(x.entry(w_.sublayer), batch, ops);  // [T, (q | k | v | z | b | a)]
  const Tensor z = in.columns(C, Hv * V).reshape({T, Hv, V});
  const Tensor b = in.columns(C + Hv * V, Hv), a = in.columns(C + Hv * V + Hv, Hv);

  const Tensor qkv = ops.make({T, C});
  const Tensor out = ops.make({T, Hv, V});
  ops.delta_net({.conv = {.out = qkv, .x = in.columns(0, C), .weight = w_.conv, .bias = {}, .state = state.tensors[0],
                          .tape = lazy ? state.tapes[0] : Tensor{}},
                 .delta = {.out = out, .qkv = qkv, .a = a, .b = b, .a_log = w_.a_log, .dt_bias = w_.dt_bias,
                           .key_heads = config_.key_heads, .value_heads = config_.value_heads, .key_dim = config_.key_dim,
                           .value_dim = config_.value_dim, .state = state.tensors[1],
                           .tape = lazy ? state.tapes[1] : Tensor{}},
                 .norm = {.out = out, .x = out, .gate = z, .weight = w_.norm.weight, .eps = w_.norm.eps,
                          .activation = config_.gate}}, batch);
  w_.out(x.output(), out.reshape({T, Hv * V}), batch, ops);
  x.leave(w_.sublayer);
}

}  // namespace strata
