// attention: causal attention of every row over its own sequence's pages.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kv_convert.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/scalar_math.h"
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

}  // namespace

void CpuOps::attention(const AttentionArgs& args, const Batch& batch) {
  const Dims d = check(args, batch);
  const auto *sequence = batch.sequence.data<std::int32_t>(), *first = batch.first.data<std::int32_t>(),
             *start = batch.start.data<std::int32_t>(), *slots = batch.kv_slots.data<std::int32_t>();
  threads_->parallel_for(batch.shape.rows * d.heads, [&](std::int64_t item) {
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
    float* scores = worker_scratch(static_cast<std::size_t>(p + 1 + d.head_dim));
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

}  // namespace strata
