// Attention of each row over chosen blocks of its sequence's tokens: the part of `attention` for sparse
// layers.
#include "ops/cpu/block_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/kv_convert.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/worker_scratch.h"

namespace strata {

void block_attention(const AttentionArgs& args, const Batch& batch, ThreadPool& threads) {
  const std::int64_t heads = args.q[1], kv_heads = args.kv.k[2], head_dim = args.q[2],
                     value_dim = args.out[2];
  const std::int64_t most = args.blocks.row_size();
  STRATA_CHECK(args.blocks.rows() == batch.shape.rows && args.block >= 1, "attention: blocks {} of {} tokens",
               args.blocks.shape().to_string(), args.block);
  const auto *sequence = batch.sequence.data<std::int32_t>(), *first = batch.first.data<std::int32_t>(),
             *start = batch.start.data<std::int32_t>(), *slots = batch.kv_slots.data<std::int32_t>();
  const Tensor& values = args.kv.v.empty() ? args.kv.k : args.kv.v;
  threads.parallel_for(batch.shape.rows * heads, [&](std::int64_t item) {
    const std::int64_t t = item / heads, h = item % heads, kv_head = h / (heads / kv_heads);
    float* out = args.out.row<float>(t) + h * value_dim;
    std::fill_n(out, value_dim, 0.0F);
    if (slots[t] < 0) return;
    const std::int64_t s = sequence[t], p = start[s] + t - first[s], tail = (p + 1) / args.block * args.block;
    float* entry = worker_scratch(
        static_cast<std::size_t>(2 * ((most + 1) * args.block + std::max(head_dim, value_dim))));
    float* scores = entry + std::max(head_dim, value_dim);
    auto* keys =
        reinterpret_cast<std::int32_t*>(scores + (most + 1) * args.block);  // slots, in the order of tokens
    std::int64_t count = 0;
    const auto see = [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t j = from; j < to; ++j) {
        keys[count++] = batch.page_table.row<std::int32_t>(s)[j / kPageTokens] * kPageTokens +
                        static_cast<std::int32_t>(j % kPageTokens);
      }
    };
    const auto* blocks = args.blocks.row<std::int32_t>(t);
    for (std::int64_t b = 0; b < most && blocks[b] >= 0; ++b)
      see(blocks[b] * args.block, (blocks[b] + 1) * args.block);
    see(tail, p + 1);

    const float* q = args.q.row<float>(t) + h * head_dim;
    float top = args.sinks.empty() ? -std::numeric_limits<float>::infinity() : args.sinks.data<float>()[h];
    for (std::int64_t j = 0; j < count; ++j) {
      load_kv(args.kv.k.dtype(), entry, kv_entry(args.kv.k, keys[j]), kv_head * head_dim, head_dim);
      double dot = 0;
      for (std::int64_t i = 0; i < head_dim; ++i) dot += static_cast<double>(q[i]) * entry[i];
      scores[j] = static_cast<float>(dot) * args.scale;
      if (args.softcap != 0) scores[j] = args.softcap * std::tanh(scores[j] / args.softcap);
      top = std::max(top, scores[j]);
    }
    double sum = args.sinks.empty() ? 0.0 : std::exp(args.sinks.data<float>()[h] - top);
    for (std::int64_t j = 0; j < count; ++j) {
      const float weight = std::exp(scores[j] - top);
      sum += weight;
      load_kv(values.dtype(), entry, kv_entry(values, keys[j]), kv_head * values[3], value_dim);
      for (std::int64_t i = 0; i < value_dim; ++i) out[i] += weight * entry[i];
    }
    for (std::int64_t i = 0; i < value_dim; ++i) {
      out[i] *= static_cast<float>(1.0 / sum);
      if (!args.gate.empty()) out[i] *= sigmoid(args.gate.row<float>(t)[h * value_dim + i]);
    }
  });
}

}  // namespace strata
