#include "layers/attention.h"

namespace strata {

Attention::Attention(const AttentionConfig& config, AttentionWeights weights) : config_(config), w_(std::move(weights)) {
  const std::int64_t q = std::int64_t{config.heads} * config.head_dim, kv = std::int64_t{config.kv_heads} * config.head_dim;
  STRATA_CHECK(config.heads % config.kv_heads == 0, "heads: q {}, kv {}", config.heads, config.kv_heads);
  const std::int64_t index = w_.indexer ? std::int64_t{w_.indexer->heads + 1} * w_.indexer->dim : 0;
  STRATA_CHECK(w_.qkv.outputs() == q * (config.gated ? 2 : 1) + 2 * kv + index, "qkv rows: {}", w_.qkv.outputs());
  STRATA_CHECK(w_.out.inputs() == q, "o_proj inputs: {}, heads * head_dim {}", w_.out.inputs(), q);
}

StateSpec Attention::state() const {
  return PagedKv{.heads = config_.kv_heads, .head_dim = config_.head_dim, .window = config_.window,
                 .index_dim = w_.indexer ? w_.indexer->dim : 0};
}

void Attention::forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const {
  const Scratch scratch(ops.arena());
  const auto& kv = std::get<KvView>(memory);
  const std::int64_t T = batch.shape.rows, H = config_.heads, Hk = config_.kv_heads, Dh = config_.head_dim;

  const Tensor qkv = w_.qkv(x.entry(w_.sublayer), batch, ops);  // [T, (q | gate | k | v)]
  std::int64_t at = 0;
  const auto next = [&](std::int64_t heads, std::int64_t dim) {
    const Tensor part = qkv.columns(at, heads * dim).reshape({T, heads, dim});
    at += heads * dim;
    return part;
  };
  const Tensor q = next(H, Dh), gate = config_.gated ? next(H, Dh) : Tensor{}, k = next(Hk, Dh), v = next(Hk, Dh);

  if (!w_.q_row_norm.empty()) {
    const Tensor rows = q.reshape({T, H * Dh});
    ops.rms_norm(rows, rows, w_.q_row_norm, w_.norm_eps);
  }
  if (!w_.k_row_norm.empty()) {
    const Tensor rows = k.reshape({T, Hk * Dh});
    ops.rms_norm(rows, rows, w_.k_row_norm, w_.norm_eps);
  }
  ops.prepare_qkv({.q = q, .k = k, .v = v, .q_norm = w_.q_norm, .k_norm = w_.k_norm, .v_norm = w_.v_norm,
                   .eps = w_.norm_eps, .rope = w_.rope.get(), .kv = kv}, batch);
  Tensor blocks;  // [T, most]
  if (w_.indexer) {
    const Indexer& index = *w_.indexer;
    const Tensor iq = next(index.heads, index.dim), ik = next(1, index.dim).reshape({T, index.dim});
    ops.prepare_qkv({.q = iq, .k = {}, .v = {}, .q_norm = index.q_norm, .k_norm = {}, .v_norm = {}, .eps = w_.norm_eps,
                     .rope = w_.rope.get(), .kv = {}}, batch);
    ops.store_index({.k = ik, .norm = index.k_norm, .eps = w_.norm_eps, .rope = w_.rope.get(), .block = index.block, .kv = kv}, batch);
    blocks = ops.make({T, index.most}, DType::kI32);
    ops.select_blocks({.blocks = blocks, .q = iq, .block = index.block, .kv = kv}, batch);
  }
  const Tensor out = ops.make({T, H, Dh});
  ops.attention({.out = out, .q = q, .kv = kv, .scale = config_.scale, .window = config_.window, .skip = config_.skip,
                 .softcap = config_.softcap, .sinks = w_.sinks, .gate = gate, .blocks = blocks,
                 .block = w_.indexer ? w_.indexer->block : 0}, batch);
  w_.out(x.output(), out.reshape({T, H * Dh}), batch, ops);
  x.leave(w_.sublayer);
}

}  // namespace strata
