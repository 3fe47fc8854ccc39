#include "layers/mla.h"

namespace strata {

Mla::Mla(const MlaConfig& config, MlaWeights weights) : config_(config), w_(std::move(weights)) {
  const std::int64_t H = config.heads, R = config.latent, query = config.nope_dim + config.rope_dim;
  const std::int64_t queries = w_.query_up.empty() ? H * query : w_.query_up.inputs();
  STRATA_CHECK(w_.in.outputs() == queries + R + config.rope_dim, "mla input rows: {}", w_.in.outputs());
  STRATA_CHECK(w_.query_up.empty() || w_.query_up.outputs() == H * query, "q_b_proj rows: {}",
               w_.query_up.outputs());
  STRATA_CHECK(w_.absorbed_key.weight().shape == (Shape{H, R, config.nope_dim}), "absorbed key: {}",
               w_.absorbed_key.weight().shape.to_string());
  STRATA_CHECK(w_.absorbed_value.weight().shape == (Shape{H, config.value_dim, R}), "absorbed value: {}",
               w_.absorbed_value.weight().shape.to_string());
  STRATA_CHECK(w_.out.inputs() == H * config.value_dim, "o_proj inputs: {}", w_.out.inputs());
  STRATA_CHECK(w_.rope->offset == R, "rope offset: {}, latent {}", w_.rope->offset, R);
}

StateSpec Mla::state() const {
  return PagedKv{.heads = 1, .head_dim = config_.latent + config_.rope_dim, .value_dim = 0};
}

void Mla::forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const auto& kv = std::get<KvView>(memory);
  const std::int64_t T = batch.shape.rows, H = config_.heads, R = config_.latent, Dn = config_.nope_dim,
                     Dr = config_.rope_dim, Dv = config_.value_dim;

  const Tensor in = w_.in(x.entry(w_.sublayer), batch, ops);  // [T, (query latent | latent | rotary key)]
  const std::int64_t at = in.row_size() - R - Dr;
  const Tensor latent = in.columns(at, R), k = in.columns(at, R + Dr).reshape({T, 1, R + Dr});
  ops.rms_norm(latent, latent, w_.latent_norm, config_.latent_eps);

  Tensor q = ops.make({T, H * (Dn + Dr)});
  if (w_.query_up.empty()) {
    ops.concat(q, in.columns(0, H * Dn), in.columns(H * Dn, H * Dr));  // now without gaps between rows
  } else {
    const Tensor low = in.columns(0, at);
    ops.rms_norm(low, low, w_.query_norm, config_.latent_eps);
    w_.query_up(q, low, batch, ops);
  }
  q = q.reshape({T * H, Dn + Dr});

  // Each head's query in the latent's space, its rotary part behind.
  const Routing heads = ops.route_all(T, H);
  const Tensor turned = w_.absorbed_key(q.columns(0, Dn), heads, batch, ops);  // [T*H, R]
  const Tensor query = ops.make({T * H, R + Dr});
  ops.concat(query, turned, q.columns(Dn, Dr));

  const Tensor q_heads = query.reshape({T, H, R + Dr}), mixed = ops.make({T, H, R});
  ops.prepare_qkv({.q = q_heads,
                   .k = k,
                   .v = {},
                   .q_norm = {},
                   .k_norm = {},
                   .v_norm = {},
                   .rope = w_.rope.get(),
                   .kv = kv},
                  batch);
  ops.attention({.out = mixed, .q = q_heads, .kv = kv, .scale = config_.scale}, batch);

  const Tensor values = w_.absorbed_value(mixed.reshape({T * H, R}), heads, batch, ops);  // [T*H, Dv]
  w_.out(x.output(), values.reshape({T, H * Dv}), batch, ops);
  x.leave(w_.sublayer);
}

}  // namespace strata
