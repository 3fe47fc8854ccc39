// store_index, select_blocks and ngram_rows: plain kernels, a warp or a block a row, a thread a sequence.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/pages.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/sparse.h"

namespace strata::cuda {
namespace {

__device__ __forceinline__ int index_of(const BatchView& b, int t) { return b.start[b.sequence[t]] + t - b.first[b.sequence[t]]; }
__device__ __forceinline__ int slot_of(const BatchView& b, int t, int j) {
  return b.page_table[b.sequence[t] * b.page_stride + j / kTokensPerPage] * kTokensPerPage + j % kTokensPerPage;
}

// A warp per row: keys of tokens that do not end a block.
__global__ void __launch_bounds__(32) raw_kernel(IndexView a) {
  begin_kernel();
  const int t = blockIdx.x, slot = a.batch.kv_slots[t];
  if (slot < 0 || index_of(a.batch, t) % a.block == a.block - 1) return;
  const std::int64_t at = page_entry(a.pages, slot, a.dim);
  for (int i = threadIdx.x; i < a.dim; i += 32) store_elem(a.pages.data, a.pages.elem, at + i, load(a.k, t, i));
}

// A warp per row: the key of the block that the row's token ends.
__global__ void __launch_bounds__(32) block_kernel(IndexView a) {
  begin_kernel();
  __shared__ float x[256];
  const int t = blockIdx.x, slot = a.batch.kv_slots[t], j = index_of(a.batch, t);
  if (slot < 0 || j % a.block != a.block - 1) return;
  const int begin = j - (a.block - 1);
  float squares = 0;
  for (int i = threadIdx.x; i < a.dim; i += 32) {
    float sum = 0;
    for (int k = begin; k < j; ++k) sum += load_elem(a.pages.data, a.pages.elem, page_entry(a.pages, slot_of(a.batch, t, k), a.dim) + i);
    x[i] = (sum + load(a.k, t, i)) / static_cast<float>(a.block);
    squares += x[i] * x[i];
  }
  const float factor = rsqrtf(warp_sum(squares) / static_cast<float>(a.dim) + a.eps);
  for (int i = threadIdx.x; i < a.dim; i += 32) x[i] *= factor * a.norm[i];
  __syncwarp();
  for (int i = threadIdx.x; i < a.pairs; i += 32) {
    float sine, cosine;
    sincosf(static_cast<float>(begin) * a.inv_freq[i], &sine, &cosine);
    const float lo = x[i], hi = x[i + a.pairs];
    x[i] = (lo * cosine - hi * sine) * a.rope_scale;
    x[i + a.pairs] = (hi * cosine + lo * sine) * a.rope_scale;
  }
  __syncwarp();
  const std::int64_t at = page_entry(a.pages, slot, a.dim);
  for (int i = threadIdx.x; i < a.dim; i += 32) store_elem(a.pages.data, a.pages.elem, at + i, x[i]);
}

// A block of threads per row: the scores, then the place of each by counting better ones.
__global__ void __launch_bounds__(256) select_kernel(SelectView a) {
  begin_kernel();
  const int t = blockIdx.x;
  int* chosen = a.blocks + std::int64_t{t} * a.most;
  const bool padding = a.batch.kv_slots[t] < 0;
  const int complete = padding ? 0 : (index_of(a.batch, t) + 1) / a.block;
  if (complete <= a.most) {
    for (int i = threadIdx.x; i < a.most; i += 256) chosen[i] = i < complete ? i : -1;
    return;
  }
  float* scores = a.scores + t * a.score_stride;
  for (int b = threadIdx.x; b < complete; b += 256) {
    const std::int64_t at = page_entry(a.pages, slot_of(a.batch, t, (b + 1) * a.block - 1), a.dim);
    float sum = 0;
    for (int h = 0; h < a.heads; ++h) {
      float dot = 0;
      for (int i = 0; i < a.dim; ++i) dot += load(a.q, t, h * a.dim + i) * load_elem(a.pages.data, a.pages.elem, at + i);
      sum += fmaxf(0.0F, dot);
    }
    scores[b] = sum;
  }
  __syncthreads();
  // The chosen ones in ascending order: each thread walks a stretch of blocks, after those before it have counted.
  __shared__ int counts[256];
  const int share = ceil_div(complete, 256), begin = min(complete, static_cast<int>(threadIdx.x) * share), end = min(complete, begin + share);
  const auto good = [&](int b) {
    int better = 0;
    for (int o = 0; o < complete && better < a.most; ++o) better += scores[o] > scores[b] || (scores[o] == scores[b] && o < b);
    return better < a.most;
  };
  int count = 0;
  for (int b = begin; b < end; ++b) count += good(b);
  counts[threadIdx.x] = count;
  __syncthreads();
  int at = 0;
  for (int i = 0; i < static_cast<int>(threadIdx.x); ++i) at += counts[i];
  for (int b = begin; b < end; ++b) {
    if (good(b)) chosen[at++] = b;
  }
}

constexpr int kMostGram = 4;

// A thread per sequence: see ops/cpu/ngram_rows.cpp.
__global__ void __launch_bounds__(32) ngram_kernel(NgramView a) {
  begin_kernel();
  const int s = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  if (s >= a.batch.sequences) return;
  Run run = run_of(a.batch, s);
  std::int64_t last[kMostGram] = {-1, -1, -1, -1};
  const auto push = [&](std::int64_t token) {
    for (int i = kMostGram - 1; i > 0; --i) last[i] = last[i - 1];
    last[0] = token;
  };
  const auto keep = [&](int slot) {
    for (int i = 1; i < a.n; ++i) store(a.state, slot, a.n - 1 - i, static_cast<float>(last[i - 1] + 1));
  };
  for (int i = 1; run.state_in >= 0 && i < a.n; ++i) last[i - 1] = static_cast<std::int64_t>(load(a.state, run.state_in, a.n - 1 - i)) - 1;
  for (int i = 0; i < run.replay; ++i) push(static_cast<std::int64_t>(load(a.tape, run.tape, i)) - 1);
  if (run.state_out >= 0) keep(run.state_out);
  for (int row = run.begin; row < run.end; ++row) {
    push(a.batch.tokens[row]);
    auto hash = static_cast<std::uint64_t>(last[0]) * static_cast<std::uint64_t>(a.multipliers[0]);
    bool broken = false;
    for (int gram = 2; gram <= a.n; ++gram) {
      const std::int64_t token = last[gram - 1];
      broken = broken || token < 0 || token == a.end_token;
      hash ^= static_cast<std::uint64_t>(broken ? a.end_token : token) * static_cast<std::uint64_t>(a.multipliers[gram - 1]);
      for (int h = 0; h < a.heads; ++h) {
        const int i = (gram - 2) * a.heads + h;
        const std::int64_t rest = static_cast<std::int64_t>(hash) % a.sizes[i];
        a.out[std::int64_t{row} * (a.n - 1) * a.heads + i] = static_cast<int>((rest < 0 ? rest + a.sizes[i] : rest) + a.offsets[i]);
      }
    }
    run.save(row, keep);
  }
  for (int row = run.begin; run.tape >= 0 && row < run.end; ++row) {
    store(a.tape, run.tape, row - run.begin, static_cast<float>(a.batch.tokens[row] + 1));
  }
}

}  // namespace

void launch_store_index(const IndexView& args, Stream stream) {
  launch(raw_kernel, static_cast<unsigned>(args.batch.rows), 32, 0, stream, args);
  launch(block_kernel, static_cast<unsigned>(args.batch.rows), 32, 0, stream, args);
}

void launch_select_blocks(const SelectView& args, Stream stream) {
  launch(select_kernel, static_cast<unsigned>(args.batch.rows), 256, 0, stream, args);
}

void launch_ngram_rows(const NgramView& args, Stream stream) {
  launch(ngram_kernel, static_cast<unsigned>(ceil_div(args.batch.sequences, 32)), 32, 0, stream, args);
}

}  // namespace strata::cuda
