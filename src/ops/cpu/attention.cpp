// attention: causal attention of every row over its own sequence's pages.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/block_attention.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kv_convert.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/simd_rows.h"
#include "ops/cpu/worker_scratch.h"

namespace strata {
namespace {

struct Dims {
  std::int64_t heads, kv_heads, head_dim, value_dim;
};

Dims check(const AttentionArgs& args, const Batch& batch) {
  const Tensor &q = args.q, &out = args.out, &k = args.kv.k, &v = args.kv.v;
  STRATA_CHECK(q.shape().rank() == 3 && out.shape().rank() == 3,
               "attention: q has rank {}, out {}, expected 3", q.shape().rank(), out.shape().rank());
  const Dims d{q[1], k[2], q[2], out[2]};
  check_matrix("attention", "q", q, batch.shape.rows, d.heads * d.head_dim);
  check_matrix("attention", "out", out, batch.shape.rows, d.heads * d.value_dim);
  check_extent("attention", "page tokens", k[1], kPageTokens);
  check_extent("attention", "head_dim of k", k[3], d.head_dim);
  STRATA_CHECK(d.heads % d.kv_heads == 0, "attention: {} heads over {} kv heads", d.heads, d.kv_heads);
  check_kv_dtype(k.dtype());
  if (v.empty()) {
    STRATA_CHECK(d.value_dim <= d.head_dim, "attention: values of {} in keys of {}", d.value_dim, d.head_dim);
  } else {
    check_kv_dtype(v.dtype());
    check_extent("attention", "pages of v", v[0], k[0]);
    check_extent("attention", "heads of v", v[2], d.kv_heads);
    check_extent("attention", "value_dim of v", v[3], d.value_dim);
  }
  if (!args.sinks.empty()) check_vector("attention", "sinks", args.sinks, d.heads);
  if (!args.gate.empty())
    check_matrix("attention", "gate", args.gate, batch.shape.rows, d.heads * d.value_dim);
  return d;
}

// The plain body: one row and head at a time, two passes over its keys.
void attend_scalar(const AttentionArgs& args, const Batch& batch, const Dims& d, ThreadPool& threads) {
  const auto *sequence = batch.sequence.data<std::int32_t>(), *first = batch.first.data<std::int32_t>(),
             *start = batch.start.data<std::int32_t>(), *slots = batch.kv_slots.data<std::int32_t>();
  threads.parallel_for(batch.shape.rows * d.heads, [&](std::int64_t item) {
    const std::int64_t t = item / d.heads, h = item % d.heads, kv_head = h / (d.heads / d.kv_heads);
    float* out = args.out.row<float>(t) + h * d.value_dim;
    std::fill_n(out, d.value_dim, 0.0F);
    if (slots[t] < 0) return;
    const std::int64_t s = sequence[t], p = start[s] + t - first[s];
    const std::int64_t low = std::max<std::int64_t>(args.skip, args.window > 0 ? p - args.window + 1 : 0);
    const auto* pages = batch.page_table.row<std::int32_t>(s);
    const auto slot_of = [&](std::int64_t j) {
      return pages[j / kPageTokens] * std::int64_t{kPageTokens} + j % kPageTokens;
    };
    float* scores = worker_scratch(static_cast<std::size_t>(p + 1 + std::max(d.head_dim, d.value_dim)));
    float* entry = scores + p + 1;
    const float* q = args.q.row<float>(t) + h * d.head_dim;
    float most = args.sinks.empty() ? -std::numeric_limits<float>::infinity() : args.sinks.data<float>()[h];
    for (std::int64_t j = low; j <= p; ++j) {
      load_kv(args.kv.k.dtype(), entry, kv_entry(args.kv.k, slot_of(j)), kv_head * d.head_dim, d.head_dim);
      double dot = 0;
      for (std::int64_t i = 0; i < d.head_dim; ++i) dot += static_cast<double>(q[i]) * entry[i];
      scores[j] = static_cast<float>(dot) * args.scale;
      if (args.softcap != 0) scores[j] = args.softcap * std::tanh(scores[j] / args.softcap);
      most = std::max(most, scores[j]);
    }
    double sum = args.sinks.empty() ? 0.0 : std::exp(args.sinks.data<float>()[h] - most);
    for (std::int64_t j = low; j <= p; ++j) sum += scores[j] = std::exp(scores[j] - most);
    const Tensor& values = args.kv.v.empty() ? args.kv.k : args.kv.v;
    for (std::int64_t j = low; j <= p; ++j) {
      load_kv(values.dtype(), entry, kv_entry(values, slot_of(j)), kv_head * values[3], d.value_dim);
      for (std::int64_t i = 0; i < d.value_dim; ++i) out[i] += scores[j] * entry[i];
    }
    const auto norm = low <= p ? static_cast<float>(1.0 / sum) : 0.0F;
    for (std::int64_t i = 0; i < d.value_dim; ++i) {
      out[i] *= norm;
      if (!args.gate.empty()) out[i] *= sigmoid(args.gate.row<float>(t)[h * d.value_dim + i]);
    }
  });
}

// How the rows of a batch are cut into tiles of queries that share a kv head and, mostly, their keys.
class Tiling {
 public:
  Tiling(const AttentionArgs& args, const Batch& batch, const Dims& d, Tensor first_tile)
      : args_(args), batch_(batch), d_(d), first_tile_(first_tile.data<std::int32_t>()) {
    const std::int64_t group = d.heads / d.kv_heads;
    tile_heads_ = std::min<std::int64_t>(group, kTileQueries);
    head_parts_ = (group + tile_heads_ - 1) / tile_heads_;
    tile_rows_ = kTileQueries / tile_heads_;
    const auto* first = batch.first.data<std::int32_t>();
    first_tile_[0] = 0;
    for (int s = 0; s < batch.shape.sequences; ++s) {
      const std::int64_t blocks = (first[s + 1] - first[s] + tile_rows_ - 1) / tile_rows_;
      first_tile_[s + 1] = first_tile_[s] + static_cast<std::int32_t>(blocks * d.kv_heads * head_parts_);
    }
  }

  std::int64_t count() const { return first_tile_[batch_.shape.sequences]; }

  // Tile `number`, with the output of each of its queries; no queries if all its rows are padding.
  struct Part {
    AttentionTile tile;
    std::int64_t row[kTileQueries], head[kTileQueries];
  };
  void tile(std::int64_t number, Part& part) const {
    const auto *first = batch_.first.data<std::int32_t>(), *start = batch_.start.data<std::int32_t>(),
               *slots = batch_.kv_slots.data<std::int32_t>();
    const auto* after = std::upper_bound(first_tile_, first_tile_ + batch_.shape.sequences + 1, number);
    const std::int64_t s = after - first_tile_ - 1, at = number - first_tile_[s],
                       parts = d_.kv_heads * head_parts_;
    const std::int64_t kv_head = at % parts / head_parts_, group = d_.heads / d_.kv_heads;
    const std::int64_t row = first[s] + at / parts * tile_rows_,
                       last = std::min<std::int64_t>(row + tile_rows_, first[s + 1]);
    const std::int64_t from = kv_head * group + at % head_parts_ * tile_heads_;
    const std::int64_t to = std::min(from + tile_heads_, (kv_head + 1) * group);
    AttentionTile& tile = part.tile;
    tile.queries = 0;
    tile.kv = &args_.kv;
    tile.pages = batch_.page_table.row<std::int32_t>(s);
    tile.kv_head = kv_head;
    tile.head_dim = d_.head_dim;
    tile.value_dim = d_.value_dim;
    tile.scale = args_.scale;
    tile.softcap = args_.softcap;
    for (std::int64_t t = row; t < last; ++t) {
      if (slots[t] < 0) continue;
      const int p = start[s] + static_cast<int>(t - first[s]);
      for (std::int64_t h = from; h < to; ++h) {
        const auto i = static_cast<std::size_t>(tile.queries++);
        tile.q[i] = args_.q.row<float>(t) + h * d_.head_dim;
        tile.low[i] = std::max(args_.skip, args_.window > 0 ? p - args_.window + 1 : 0);
        tile.high[i] = p + 1;
        part.row[i] = t;
        part.head[i] = h;
      }
    }
  }

 private:
  const AttentionArgs& args_;
  const Batch& batch_;
  Dims d_;
  std::int32_t* first_tile_;  // [S+1]
  std::int64_t tile_heads_, head_parts_, tile_rows_;
};

// Sums over `queries` queries in memory of that many `sums_floats`.
AttentionSums sums_at(float* memory, std::int64_t queries, std::int64_t value_dim) {
  return {memory, memory + queries * value_stride(value_dim),
          memory + queries * (value_stride(value_dim) + 1)};
}
std::size_t sums_floats(std::int64_t value_dim) {
  return static_cast<std::size_t>(kTileQueries * (value_stride(value_dim) + 2));
}

// into = the softmax over what both have seen; `span` has the later keys.
void merge(const AttentionTile& tile, const AttentionSums& into, const AttentionSums& span) {
  const std::int64_t stride = value_stride(tile.value_dim);
  for (int i = 0; i < tile.queries; ++i) {
    if (span.sum[i] == 0) continue;
    const float most = std::max(into.most[i], span.most[i]);
    const float a = std::exp(into.most[i] - most), b = std::exp(span.most[i] - most);
    float* to = into.values + i * stride;
    const float* from = span.values + i * stride;
    for (std::int64_t c = 0; c < tile.value_dim; ++c) to[c] = to[c] * a + from[c] * b;
    into.sum[i] = into.sum[i] * a + span.sum[i] * b;
    into.most[i] = most;
  }
}

void clear(const AttentionTile& tile, const AttentionSums& sums) {
  std::fill_n(sums.values, tile.queries * value_stride(tile.value_dim), 0.0F);
  std::fill_n(sums.most, tile.queries, -std::numeric_limits<float>::infinity());
  std::fill_n(sums.sum, tile.queries, 0.0F);
}

// The sink joins the softmax, which then is divided by its sum; the gate is applied.
void finish(const AttentionArgs& args, const Tiling::Part& part, const AttentionSums& sums) {
  const std::int64_t value_dim = part.tile.value_dim;
  for (int i = 0; i < part.tile.queries; ++i) {
    const std::int64_t t = part.row[i], h = part.head[i];
    float factor = 1, sum = sums.sum[i];
    if (!args.sinks.empty() && sum != 0) {
      const float sink = args.sinks.data<float>()[h], most = std::max(sink, sums.most[i]);
      factor = std::exp(sums.most[i] - most);
      sum = sum * factor + std::exp(sink - most);
    }
    float* out = args.out.row<float>(t) + h * value_dim;
    simd::scale_row(out, sums.values + i * value_stride(value_dim), sum == 0 ? 0.0F : factor / sum, nullptr,
                    value_dim);
    if (!args.gate.empty()) {
      simd::gate_row(Activation::kSigmoid, out, args.gate.row<float>(t) + h * value_dim, out, 0, value_dim);
    }
  }
}

int first_span(const AttentionTile& tile) {
  return *std::min_element(tile.low, tile.low + tile.queries) / kSpanTokens;
}
int last_span(const AttentionTile& tile) {
  return (*std::max_element(tile.high, tile.high + tile.queries) + kSpanTokens - 1) / kSpanTokens;
}

}  // namespace

void CpuOps::attention(const AttentionArgs& args, const Batch& batch) {
  const Dims d = check(args, batch);
  if (!args.blocks.empty()) return block_attention(args, batch, *threads_);
  const auto* slots = batch.kv_slots.data<std::int32_t>();
  for (std::int64_t t = 0; t < batch.shape.rows; ++t) {
    if (slots[t] < 0) std::fill_n(args.out.row<float>(t), args.out.row_size(), 0.0F);  // padding
  }
  if (scalar_) return attend_scalar(args, batch, d, *threads_);

  const Scratch scratch(arena());
  const Tiling tiling(args, batch, d, make({batch.shape.sequences + 1}, DType::kI32));
  const std::int64_t tiles = tiling.count();
  const int spans = (batch.shape.longest_context + kSpanTokens - 1) / kSpanTokens;
  const std::size_t floats = sums_floats(d.value_dim);

  // Few tiles over long contexts (decode): a span is a piece of work, merged afterwards. Otherwise a tile is.
  // Both merge the same sums in the same order.
  if (spans > 1 && tiles < 4 * threads_->size()) {
    const Tensor sums = make({tiles * spans, static_cast<std::int64_t>(floats)}, DType::kF32);
    threads_->parallel_for(tiles * spans, [&](std::int64_t item) {
      Tiling::Part part;
      tiling.tile(item / spans, part);
      const int span = static_cast<int>(item % spans);
      if (part.tile.queries == 0 || span < first_span(part.tile) || span >= last_span(part.tile)) return;
      attend_span(part.tile, span, sums_at(sums.row<float>(item), part.tile.queries, d.value_dim),
                  worker_scratch(attend_scratch(part.tile)));
    });
    threads_->parallel_for(tiles, [&](std::int64_t number) {
      Tiling::Part part;
      tiling.tile(number, part);
      if (part.tile.queries == 0) return;
      const AttentionSums total = sums_at(worker_scratch(floats), part.tile.queries, d.value_dim);
      clear(part.tile, total);
      for (int span = first_span(part.tile); span < last_span(part.tile); ++span) {
        merge(part.tile, total,
              sums_at(sums.row<float>(number * spans + span), part.tile.queries, d.value_dim));
      }
      finish(args, part, total);
    });
    return;
  }
  // From the last, which mostly is the longest, so that the threads end together.
  threads_->parallel_for(tiles, [&](std::int64_t item) {
    Tiling::Part part;
    tiling.tile(tiles - 1 - item, part);
    if (part.tile.queries == 0) return;
    float* memory = worker_scratch(2 * floats + attend_scratch(part.tile));
    const AttentionSums total = sums_at(memory, part.tile.queries, d.value_dim);
    const AttentionSums one = sums_at(memory + floats, part.tile.queries, d.value_dim);
    clear(part.tile, total);
    for (int span = first_span(part.tile); span < last_span(part.tile); ++span) {
      attend_span(part.tile, span, one, memory + 2 * floats);
      merge(part.tile, total, one);
    }
    finish(args, part, total);
  });
}

}  // namespace strata
