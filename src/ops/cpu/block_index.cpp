// store_index and select_blocks: which blocks of tokens the rows of a sparse attention look at.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kv_convert.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/worker_scratch.h"

namespace strata {
namespace {

// Where the rows of a batch are in their sequences.
struct Places {
  explicit Places(const Batch& b)
      : batch(b),
        sequence(b.sequence.data<std::int32_t>()),
        first(b.first.data<std::int32_t>()),
        start(b.start.data<std::int32_t>()),
        slots(b.kv_slots.data<std::int32_t>()) {}
  std::int64_t index(std::int64_t t) const { return start[sequence[t]] + t - first[sequence[t]]; }
  // Slot of token j of row t's sequence.
  std::int64_t slot(std::int64_t t, std::int64_t j) const {
    return batch.page_table.row<std::int32_t>(sequence[t])[j / kPageTokens] * std::int64_t{kPageTokens} +
           j % kPageTokens;
  }
  const Batch& batch;
  const std::int32_t *sequence, *first, *start, *slots;
};

// x [n] becomes norm(x), its first channels rotated as at `position`.
void finish_key(float* x, const IndexArgs& args, std::int64_t n, std::int64_t position) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const auto factor = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + args.eps));
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * factor * args.norm.data<float>()[i];
  const std::int64_t pairs = args.rope->inv_freq.elements();
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float angle = static_cast<float>(position) * args.rope->inv_freq.data<float>()[i];
    const float cosine = std::cos(angle) * args.rope->scale, sine = std::sin(angle) * args.rope->scale;
    const float a = x[i], b = x[i + pairs];
    x[i] = a * cosine - b * sine;
    x[i + pairs] = b * cosine + a * sine;
  }
}

}  // namespace

void CpuOps::store_index(const IndexArgs& args, const Batch& batch) {
  const std::int64_t rows = batch.shape.rows, n = args.k.row_size();
  check_matrix("store_index", "k", args.k, rows, n);
  check_vector("store_index", "norm", args.norm, n);
  STRATA_CHECK(args.block >= 1 && kPageTokens % args.block == 0, "store_index: blocks of {} in pages of {}",
               args.block, kPageTokens);
  STRATA_CHECK(2 * args.rope->inv_freq.elements() <= n && !args.rope->interleaved,
               "store_index: {} rotated channels of {}", 2 * args.rope->inv_freq.elements(), n);
  check_extent("store_index", "index_dim", args.kv.index[2], n);
  const Tensor pages = args.kv.index.reshape({args.kv.index[0], kPageTokens, 1, n});
  const Places at(batch);
  const auto last = [&](std::int64_t t) { return at.index(t) % args.block == args.block - 1; };
  threads_->parallel_for(rows, [&](std::int64_t t) {
    if (at.slots[t] >= 0 && !last(t))
      store_kv(pages.dtype(), kv_entry(pages, at.slots[t]), 0, args.k.row<float>(t), n);
  });
  // A block's key, once its tokens are all there: from the pages, be they of this step or of earlier ones.
  threads_->parallel_for(rows, [&](std::int64_t t) {
    if (at.slots[t] < 0 || !last(t)) return;
    float* mean = worker_scratch(static_cast<std::size_t>(2 * n));
    float* entry = mean + n;
    std::fill_n(mean, n, 0.0F);
    const std::int64_t begin = at.index(t) - (args.block - 1);
    for (std::int64_t j = begin; j < at.index(t); ++j) {
      load_kv(pages.dtype(), entry, kv_entry(pages, at.slot(t, j)), 0, n);
      for (std::int64_t i = 0; i < n; ++i) mean[i] += entry[i];
    }
    for (std::int64_t i = 0; i < n; ++i)
      mean[i] = (mean[i] + args.k.row<float>(t)[i]) / static_cast<float>(args.block);
    finish_key(mean, args, n, begin);
    store_kv(pages.dtype(), kv_entry(pages, at.slots[t]), 0, mean, n);
  });
}

void CpuOps::select_blocks(const SelectArgs& args, const Batch& batch) {
  const std::int64_t rows = batch.shape.rows, heads = args.q[1], n = args.q[2], most = args.blocks.row_size();
  check_matrix("select_blocks", "q", args.q, rows, heads * n);
  check_extent("select_blocks", "index_dim", args.kv.index[2], n);
  STRATA_CHECK(args.blocks.dtype() == DType::kI32 && args.blocks.rows() == rows, "select_blocks: blocks {}",
               args.blocks.shape().to_string());
  const Tensor pages = args.kv.index.reshape({args.kv.index[0], kPageTokens, 1, n});
  const Places at(batch);
  threads_->parallel_for(rows, [&](std::int64_t t) {
    auto* chosen = args.blocks.row<std::int32_t>(t);
    std::fill_n(chosen, most, -1);
    if (at.slots[t] < 0) return;
    const std::int64_t complete = (at.index(t) + 1) / args.block;
    if (complete <= most) return std::iota(chosen, chosen + complete, 0);
    float* scores = worker_scratch(static_cast<std::size_t>(2 * complete + n));
    float* entry = scores + complete;
    auto* order = reinterpret_cast<std::int32_t*>(entry + n);
    for (std::int64_t b = 0; b < complete; ++b) {
      load_kv(pages.dtype(), entry, kv_entry(pages, at.slot(t, (b + 1) * args.block - 1)), 0, n);
      scores[b] = 0;
      for (std::int64_t h = 0; h < heads; ++h) {
        const float* q = args.q.row<float>(t) + h * n;
        double dot = 0;
        for (std::int64_t i = 0; i < n; ++i) dot += static_cast<double>(q[i]) * entry[i];
        scores[b] += std::max(0.0F, static_cast<float>(dot));
      }
    }
    std::iota(order, order + complete, 0);
    const auto better = [&](std::int32_t a, std::int32_t b) {
      return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    };
    std::nth_element(order, order + most, order + complete, better);
    std::sort(order, order + most);
    std::copy_n(order, most, chosen);
  });
}

}  // namespace strata
