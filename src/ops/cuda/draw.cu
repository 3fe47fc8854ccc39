// draw: a cluster of blocks per row of logits, which stays in their shared memory for all passes.
// Probabilities are whole multiples of 2^-44 of the best one, so sums do not depend on their order and a row
// draws the same token whatever else is drawn. Where the candidates are few they go to one block, which ranks
// them; else thresholds of top-k and top-p are searched for, three bits of the ordered logit a pass.
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/device/draw_part.cuh"
#include "ops/cuda/device/launch.cuh"

namespace strata::cuda {
namespace {

using namespace drawing;

constexpr int kFewBest = kThreads / 8 * 7;  // candidates of top-k that gather() takes, with room for more

// Who may still be drawn: the candidates down to (key, id).
struct Cut {
  u32 key = 0;
  int id = 0x7FFFFFFF;
  __device__ bool keeps(u32 k, int i) const { return k > key || (k == key && i <= id); }
};

// Narrows `cut` to the `n` best.
__device__ void keep_best(Part& part, u64 n, Cut& cut) {
  const u32 t = part.search([&](auto&& f) { part.each([&](int, int, float v) { f(key_of(v), 1); }); },
                            [&](u64 sum) { return sum >= n; });
  u64 counts[2] = {};  // above t, at t
  part.each([&](int, int, float v) {
    const u32 key = key_of(v);
    counts[0] += key > t;
    counts[1] += key == t;
  });
  part.sum(counts);
  cut.key = t;
  if (n - counts[0] >= counts[1]) return;
  cut.id = part.nth(n - counts[0], [&](auto&& visit) {
    part.each([&](int, int id, float v) {
      if (key_of(v) == t) visit(id);
    });
  });
}

// Logarithms of probabilities of unchanged logits.
struct Softmax {
  float most;
  double norm;
  __device__ float at(float logit) const { return static_cast<float>(static_cast<double>(logit) - norm); }
};

__device__ Softmax softmax_of(Part& part) {
  u32 key = 0;
  part.each([&](int, int, float v) { key = max(key, key_of(v)); });
  Softmax s{value_of(static_cast<u32>(part.most(key))), 0};
  u64 sum[1] = {};
  part.each(
      [&](int, int, float v) { sum[0] += static_cast<u64>(exp(static_cast<double>(v - s.most)) * kOne); });
  part.sum(sum);
  s.norm = static_cast<double>(s.most) + log(static_cast<double>(sum[0]) / kOne);
  return s;
}

__device__ void write_top(Part& part, const Softmax& s, int n, int vocab, TopEntry* to) {
  Cut cut;
  if (n < vocab) keep_best(part, static_cast<u64>(n), cut);
  part.each([&](int, int id, float v) {
    if (cut.keeps(key_of(v), id)) to[atomicAdd(&part.emitted(), 1)] = {s.at(v), id};
  });
}

__device__ void edit(Part& part, const DrawView& a, const DrawJob& job) {
  for (int e = threadIdx.x; e < job.edits; e += kThreads) {
    const EditView& edit = a.edits[job.first_edit + e];
    const int i = edit.token - part.begin();
    if (i < 0 || i >= part.count()) continue;
    float l = part.value(i) + edit.add;
    if (edit.repetition != 1) l = l > 0 ? __fdiv_rn(l, edit.repetition) : l * edit.repetition;
    part.value(i) = tidy(isinf(edit.subtract) ? -INFINITY : l - edit.subtract);
  }
  __syncthreads();
  if (job.first_mask_word < 0) return;
  for (int i = threadIdx.x; i < part.count(); i += kThreads) {
    const int id = part.begin() + i;
    if ((a.masks[job.first_mask_word + id / 32] >> (id % 32) & 1) == 0) part.value(i) = -INFINITY;
  }
  __syncthreads();
}

// The first block's token of `n` candidates in part.few(), of which top-k keeps the best and top-p those that
// make up its share of `total` (0: of what top-k keeps). weight(value). All threads of the block.
template <typename WeightOf>
__device__ int draw_of_few(Part& part, const DrawJob& job, int n, u64 total, WeightOf&& weight) {
  __shared__ u64 totals[2];  // of what top-k and top-p keep
  u64 *candidates = part.few(), *ranked = candidates + kThreads;
  const int i = static_cast<int>(threadIdx.x), k = job.top_k > 0 ? min(job.top_k, n) : n;
  if (i < n) {
    const u64 mine = candidates[i];
    int rank = 0;
    for (int j = 0; j < n; ++j) rank += candidates[j] > mine;
    ranked[rank] = mine;
  }
  __syncthreads();
  const u64 mine = i < k ? ranked[i] : 0;
  const u32 order = static_cast<u32>(mine);  // larger for lower ids
  u64 own = i < k ? weight(value_of(static_cast<u32>(mine >> 32))) : 0;
  const u64 better = part.before(own, true);
  if (i == k - 1) totals[0] = better + own;
  __syncthreads();
  const double share = static_cast<double>(job.top_p) * static_cast<double>(total > 0 ? total : totals[0]);
  const bool kept = i < k && (job.top_p >= 1 || static_cast<double>(better) < share);
  if (!kept) own = 0;
  candidates[i] = own;
  const int left = __syncthreads_count(kept);  // the best ones
  if (i == left - 1) totals[1] = better + own;
  __syncthreads();
  const double point = job.uniform * static_cast<double>(totals[1]);
  u64 until = 0;  // of those with ids up to this one
  if (kept) {
    for (int j = 0; j < left; ++j) until += static_cast<u32>(ranked[j]) >= order ? candidates[j] : 0;
  }
  const u64 found = part.most_of_block(own > 0 && static_cast<double>(until) > point ? order : 0);
  if (found != 0) return static_cast<int>(0xFFFFFFFFU - static_cast<u32>(found));
  // Rounding at the very end: the last.
  return static_cast<int>(part.most_of_block(own > 0 ? static_cast<u64>(0xFFFFFFFFU - order) + 1 : 0)) - 1;
}

// The token of a row whose logits are edited; -1 when none may come. Only the first block's counts.
__device__ int draw_token(Part& part, const DrawJob& job, int vocab) {
  u64 best = 0;  // key, then the lower id
  part.each([&](int, int id, float v) {
    const u32 key = key_of(v);
    if (key > kNever) best = max(best, static_cast<u64>(key) << 32 | (0xFFFFFFFFU - static_cast<u32>(id)));
  });
  const u32 own_best = static_cast<u32>(best >> 32);
  best = part.most(best);
  if (best == 0) return -1;
  const int top = static_cast<int>(0xFFFFFFFFU - static_cast<u32>(best));
  if (job.temperature <= 0 || job.top_p <= 0 || job.top_k == 1) return top;

  const double most = value_of(static_cast<u32>(best >> 32)),
               inverse = 1.0 / static_cast<double>(job.temperature);
  const auto weight_of = [&](float v) -> u64 {
    const double x = (static_cast<double>(v) - most) * inverse;
    if (x < -31) return 0;  // less than 2^-44
    const double w = exp(x);
    return job.min_p > 0 && w < static_cast<double>(job.min_p) ? 0 : static_cast<u64>(w * kOne);
  };
  const bool some = job.top_k > 0 && job.top_k < vocab;
  // A block's n best are among those not below the n-th best of its threads' best ones.
  if (some && job.top_k * part.blocks() <= kFewBest) {
    const u32 least = part.nth_largest_of_block(own_best, job.top_k);
    const int n = part.gather([&](u32 key) { return key >= least; });
    if (n >= 0) return part.first_block() ? draw_of_few(part, job, n, 0, weight_of) : -1;
  }

  Cut cut;
  if (some) keep_best(part, static_cast<u64>(job.top_k), cut);
  const auto weight = [&](int id, float v) -> u64 { return cut.keeps(key_of(v), id) ? weight_of(v) : 0; };

  u64 total[1] = {};
  part.each([&](int, int id, float v) { total[0] += weight(id, v); });
  u64 own = total[0];
  part.sum(total);
  int listed = -1;  // candidates the block has listed; -1: they are too many, or all are needed
  const auto candidates = [&](auto&& f) {  // f(key, id, weight) of the thread's, in the order of ids
    if (listed < 0) {
      part.each([&](int, int id, float v) {
        if (const u64 w = weight(id, v); w > 0) f(key_of(v), id, w);
      });
      return;
    }
    const int chunk = (listed + kThreads - 1) / kThreads;
    for (int i = threadIdx.x * chunk; i < min(listed, (static_cast<int>(threadIdx.x) + 1) * chunk); ++i) {
      const Item item = part.items()[i];
      if (cut.keeps(item.key, item.id)) f(item.key, item.id, item.weight);
    }
  };

  if (job.top_p < 1 && !some) {
    // Those down to the n-th best of some block: all of them, and at most n of each; do they make up the
    // share?
    const u32 key_least =
        static_cast<u32>(part.most(part.nth_largest_of_block(own_best, kFewBest / part.blocks())));
    u64 best_mass[1] = {};
    part.each([&](int, int, float v) { best_mass[0] += key_of(v) >= key_least ? weight_of(v) : 0; });
    part.sum(best_mass);
    if (static_cast<double>(best_mass[0]) >= static_cast<double>(job.top_p) * static_cast<double>(total[0])) {
      const int n = part.gather([&](u32 key) { return key >= key_least; });
      if (n >= 0) return part.first_block() ? draw_of_few(part, job, n, total[0], weight_of) : -1;
    }
  }
  if (job.top_p < 1) {
    // Those below (1 - p) of the mean probability are never among the best that make up p: together they are
    // less than 1 - p.
    const double least =
        fmax(1.0, (1.0 - static_cast<double>(job.top_p)) * static_cast<double>(total[0]) / vocab);
    u64 chosen = 0;  // bit i: the thread's value i
    part.each([&](int i, int id, float v) {
      chosen |= static_cast<u64>(static_cast<double>(weight(id, v)) >= least) << i;
    });
    u64 in_block = 0;
    u64 at = part.before(static_cast<u64>(__popcll(chosen)), true, &in_block);
    if (in_block <= kItems) {
      part.each([&](int i, int id, float v) {
        if ((chosen >> i & 1) != 0) part.items()[at++] = {key_of(v), id, weight(id, v)};
      });
      listed = static_cast<int>(in_block);
    }
    __syncthreads();
    const double wanted = static_cast<double>(job.top_p) * static_cast<double>(total[0]);
    const u32 t = part.search([&](auto&& f) { candidates([&](u32 key, int, u64 w) { f(key, w); }); },
                              [&](u64 sum) { return static_cast<double>(sum) >= wanted; });
    u64 at_t[3] = {};  // mass above t, candidates at t, their mass
    candidates([&](u32 key, int, u64 w) {
      at_t[0] += key > t ? w : 0;
      at_t[1] += key == t;
      at_t[2] += key == t ? w : 0;
    });
    part.sum(at_t);
    const u64 each = at_t[1] > 0 ? at_t[2] / at_t[1] : 1;
    u64 needed = 1;
    if (static_cast<double>(at_t[0]) < wanted)
      needed =
          max(u64{1},
              static_cast<u64>(ceil((wanted - static_cast<double>(at_t[0])) / static_cast<double>(each))));
    Cut nucleus{t, cut.key == t ? cut.id : 0x7FFFFFFF};
    if (needed < at_t[1]) {
      nucleus.id = part.nth(needed, [&](auto&& visit) {
        candidates([&](u32 key, int id, u64) {
          if (key == t) visit(id);
        });
      });
    }
    cut = nucleus;
    own = 0;
    candidates([&](u32, int, u64 w) { own += w; });
    total[0] = own;
    part.sum(total);
  }

  const u64 earlier = part.before(own, false);
  const double point = job.uniform * static_cast<double>(total[0]);
  u64 found = 0;
  if (static_cast<double>(earlier) <= point && static_cast<double>(earlier + own) > point) {
    u64 sum = earlier;
    candidates([&](u32, int id, u64 w) {
      sum += w;
      if (found == 0 && static_cast<double>(sum) > point) found = static_cast<u64>(id) + 1;
    });
  }
  found = part.most(found);
  if (found == 0) {  // rounding at the very end: the last
    candidates([&](u32, int id, u64) { found = static_cast<u64>(id) + 1; });
    found = part.most(found);
  }
  return static_cast<int>(found) - 1;
}

__device__ void give(const DrawView& a, const DrawJob& job, const float* row, int token, float logprob,
                     int top) {
  a.kept.tokens[(a.first + static_cast<unsigned>(job.place)) & a.kept.mask] = token;
  a.results[job.place] = {token, token < 0 || isfinite(row[token]) ? 1 : 0, logprob, top};
}

__global__ void __launch_bounds__(kThreads, 1) draw_kernel(DrawView a) {
  extern __shared__ __align__(16) unsigned char raw[];
  __shared__ Shared shared;
  begin_kernel();
  const auto blocks = static_cast<int>(cg::this_cluster().num_blocks());
  const DrawJob job = a.jobs[blockIdx.x / blocks];
  Part part(shared, reinterpret_cast<float*>(raw + kItems * sizeof(Item)), reinterpret_cast<Item*>(raw),
            a.vocab);
  const float* row = a.logits + job.row * a.stride;
  part.load(row);
  if (threadIdx.x == 0) shared.emitted = 0;
  __syncthreads();
  part.sync();

  Softmax softmax{};
  if (job.logprobs >= 0) {
    softmax = softmax_of(part);
    if (job.logprobs > 0)
      write_top(part, softmax, job.logprobs, a.vocab,
                a.top + static_cast<std::int64_t>(job.place) * kMostTop);
  }
  int token = job.score;
  if (token < 0) {
    __syncthreads();
    edit(part, a, job);
    token = draw_token(part, job, a.vocab);
  }
  part.sync();  // all have read what others share, and written their best ones
  if (!part.first_block() || threadIdx.x != 0) return;
  give(a, job, row, token, job.logprobs >= 0 ? softmax.at(token < 0 ? 0 : row[token]) : 0, shared.emitted);
}

// The best token of rows that want nothing else: nothing is kept but each thread's best, and several blocks
// share a processor.
constexpr int kBestThreads = 512;
__global__ void __launch_bounds__(kBestThreads) best_kernel(DrawView a) {
  __shared__ u64 warp_best[kBestThreads / 32], block_best;
  begin_kernel();
  const auto cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
  const DrawJob job = a.jobs[blockIdx.x / blocks];
  const float* row = a.logits + job.row * a.stride;
  const int slice = slice_of(a.vocab, blocks), begin = min(a.vocab, slice * rank),
            end = min(a.vocab, begin + slice);
  float most = -INFINITY;
  int at = 0;
  const auto look = [&](float x, int id) {  // ids ascend: of equals the lower one stays; NaN is never more
    if (x > most) most = x, at = id;
  };
  if (reinterpret_cast<std::uintptr_t>(row) % sizeof(float4) == 0) {
#pragma unroll 8
    for (int i = begin / 4 + static_cast<int>(threadIdx.x); i < end / 4; i += kBestThreads) {
      const float4 x = reinterpret_cast<const float4*>(row)[i];
      look(x.x, 4 * i), look(x.y, 4 * i + 1), look(x.z, 4 * i + 2), look(x.w, 4 * i + 3);
    }
    const int last = end / 4 * 4 + static_cast<int>(threadIdx.x);
    if (last < end) look(row[last], last);
  } else {
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kBestThreads) look(row[i], i);
  }
  u64 best = most > -INFINITY
                 ? static_cast<u64>(key_of(most + 0.0F)) << 32 | (0xFFFFFFFFU - static_cast<u32>(at))
                 : 0;
  const auto of_warp = [](u64 x) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) x = max(x, __shfl_xor_sync(~0U, x, o));
    return x;
  };
  best = of_warp(best);
  const int lane = threadIdx.x % 32;
  if (lane == 0) warp_best[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x < 32) {
    best = of_warp(lane < kBestThreads / 32 ? warp_best[lane] : 0);
    if (lane == 0) block_best = best;
  }
  cluster.sync();
  if (rank == 0 && threadIdx.x < 32) {
    best = of_warp(lane < blocks ? *cluster.map_shared_rank(&block_best, lane) : 0);
    if (lane == 0)
      give(a, job, row, best == 0 ? -1 : static_cast<int>(0xFFFFFFFFU - static_cast<u32>(best)), 0, 0);
  }
  cluster.sync();  // the first block has read what the others found
}

__global__ void take_kernel(TakeView a) {
  begin_kernel();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < a.count) a.tokens[a.pairs[2 * i]] = max(a.kept[a.pairs[2 * i + 1]], 0);
}

}  // namespace

void launch_take(const TakeView& args, Stream stream) {
  constexpr int kBlock = 128;
  launch(take_kernel, dim3(static_cast<unsigned>(ceil_div(args.count, kBlock))), dim3(kBlock), 0, stream,
         args);
}

namespace {

int blocks_of(int vocab) { return vocab <= 8192 ? 1 : vocab <= 16384 ? 2 : vocab <= 32768 ? 4 : kMostBlocks; }

}  // namespace

void launch_draw(const DrawView& args, Stream stream) {
  const int blocks = blocks_of(args.vocab);
  const std::size_t shared =
      kItems * sizeof(Item) + static_cast<std::size_t>(slice_of(args.vocab, blocks)) * sizeof(float);
  check_cuda(cudaFuncSetAttribute(draw_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared)),
             "shared memory");
  launch_clusters(draw_kernel, dim3(static_cast<unsigned>(args.count * blocks)),
                  static_cast<unsigned>(blocks), dim3(kThreads), shared, stream, args);
}

void launch_best(const DrawView& args, Stream stream) {
  const int blocks = blocks_of(args.vocab);
  launch_clusters(best_kernel, dim3(static_cast<unsigned>(args.count * blocks)),
                  static_cast<unsigned>(blocks), dim3(kBestThreads), 0, stream, args);
}

}  // namespace strata::cuda
