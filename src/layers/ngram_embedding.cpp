#include "layers/ngram_embedding.h"

namespace strata {

StateSpec NgramEmbedding::state() const {
  const std::int64_t channels = std::int64_t{config_.streams} * config_.dim;
  return Recurrent{.tensors = {Shape{channels, w_.conv[1] - 1}, Shape{config_.n - 1}},
                   .tape = {static_cast<int>(channels), 1}};
}

void NgramEmbedding::forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const auto& state = std::get<StateView>(memory);
  const bool lazy = !batch.tape.empty();
  const std::int64_t T = batch.shape.rows, S = config_.streams, D = config_.dim,
                     G = std::int64_t{config_.n - 1} * config_.heads;

  const Tensor rows = ops.make({T, G}, DType::kI32);
  ops.ngram_rows({.out = rows,
                  .n = config_.n,
                  .heads = config_.heads,
                  .end_token = config_.end_token,
                  .multipliers = config_.multipliers,
                  .sizes = config_.sizes,
                  .offsets = config_.offsets,
                  .state = state.tensors[1],
                  .tape = lazy ? state.tapes[1] : Tensor{}},
                 batch);
  Tensor e = ops.make({T * G, w_.table.inputs()});
  ops.embed(e, rows.reshape({T * G}), w_.table, 1);
  e = e.reshape({T, G * w_.table.inputs()});

  const auto normed = [&](Tensor from, const Norm& norm) {
    const Tensor to = ops.make({T, S * D});
    ops.gated_norm({.out = to.reshape({T, S, D}),
                    .x = from.reshape({T, S, D}),
                    .gate = {},
                    .weight = norm.weight,
                    .eps = norm.eps});
    return to;
  };
  const Tensor stream = x.flush();  // [T, S*D]
  const Tensor key = normed(w_.key(e, batch, ops), w_.key_norm), query = normed(stream, w_.query_norm);
  const Tensor gated = ops.make({T, S * D}), mixed = ops.make({T, S * D});
  ops.gate_streams(gated, key, query, w_.value(e, batch, ops));
  ops.causal_conv({.out = mixed,
                   .x = normed(gated, w_.conv_norm),
                   .weight = w_.conv,
                   .bias = {},
                   .state = state.tensors[0],
                   .tape = lazy ? state.tapes[0] : Tensor{}},
                  batch);
  ops.add(stream, gated, 1);
  ops.add(stream, mixed, 1);
}

}  // namespace strata
