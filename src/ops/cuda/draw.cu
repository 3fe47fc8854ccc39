// draw: a cluster of blocks per row of logits, which stays in their shared memory for all passes.
// Probabilities are whole multiples of 2^-44 of the best one, so sums do not depend on their order and a row
// draws the same token whatever else is drawn; thresholds of top-k and top-p are searched for, three bits of
// the ordered logit a pass.
#include <cooperative_groups.h>

#include "ops/cuda/cuda_error.h"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/draw.h"

namespace strata::cuda {
namespace {

namespace cg = cooperative_groups;
using u32 = std::uint32_t;
using u64 = unsigned long long;

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kWays = 7;                   // thresholds tried in a pass
constexpr int kItems = 2048;               // candidates a block can list
constexpr double kOne = 17592186044416.0;  // 2^44; times 2^19 tokens fits 64 bits
constexpr u32 kNever = 0x007FFFFF;         // key of -infinity

struct Item {
  u32 key;
  int id;
  u64 weight;
};

struct Shared {
  u64 warp[kWarps][kWays];
  u64 exchange[2][kWays];
  u64 total[kWays];
  u64 scan[kWarps];
  int emitted;
};

// Ascending with the value; no NaN.
__device__ __forceinline__ u32 key_of(float x) {
  const u32 b = __float_as_uint(x);
  return (b & 0x80000000U) != 0 ? ~b : b | 0x80000000U;
}

__device__ __forceinline__ float value_of(u32 key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

// -0 counts as 0, NaN as what never comes.
__device__ __forceinline__ float tidy(float x) { return x != x ? -INFINITY : x + 0.0F; }

// One block's part of a row, and what the blocks of the cluster do together. All threads call all members
// alike.
class Part {
 public:
  __device__ Part(Shared& shared, float* values, Item* items, int vocab)
      : cluster_(cg::this_cluster()), shared_(shared), values_(values), items_(items) {
    const int blocks = static_cast<int>(cluster_.num_blocks()), slice = (vocab + blocks - 1) / blocks;
    begin_ = min(vocab, slice * static_cast<int>(cluster_.block_rank()));
    count_ = min(vocab, begin_ + slice) - begin_;
    chunk_ = ((slice + kThreads - 1) / kThreads) | 1;  // odd: no bank conflicts
  }

  __device__ int begin() const { return begin_; }
  __device__ int count() const { return count_; }
  __device__ float& value(int i) { return values_[i]; }
  __device__ bool first_block() const { return cluster_.block_rank() == 0; }
  __device__ void sync() { cluster_.sync(); }

  // The thread's own values, f(place in the thread's chunk, id, value), in the order of ids.
  template <typename F>
  __device__ __forceinline__ void each(F&& f) {
    const int from = threadIdx.x * chunk_;
    for (int i = 0; i < chunk_ && from + i < count_; ++i) f(i, begin_ + from + i, values_[from + i]);
  }

  // Sums (or, for the first, the maximum) over the cluster.
  template <int N>
  __device__ void sum(u64 (&x)[N]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int o = 16; o > 0; o >>= 1) x[i] += __shfl_xor_sync(~0U, x[i], o);
      if (lane == 0) shared_.warp[warp][i] = x[i];
    }
    __syncthreads();
    if (threadIdx.x < N) {
      u64 block = 0;
      for (int w = 0; w < kWarps; ++w) block += shared_.warp[w][threadIdx.x];
      shared_.exchange[turn_][threadIdx.x] = block;
    }
    cluster_.sync();
    if (threadIdx.x < N) {
      u64 all = 0;
      for (unsigned r = 0; r < cluster_.num_blocks(); ++r)
        all += *cluster_.map_shared_rank(&shared_.exchange[turn_][threadIdx.x], r);
      shared_.total[threadIdx.x] = all;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = shared_.total[i];
    turn_ ^= 1;
  }

  __device__ u64 most(u64 x) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) x = max(x, __shfl_xor_sync(~0U, x, o));
    if (lane == 0) shared_.warp[warp][0] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
      u64 block = 0;
      for (int w = 0; w < kWarps; ++w) block = max(block, shared_.warp[w][0]);
      shared_.exchange[turn_][0] = block;
    }
    cluster_.sync();
    if (threadIdx.x == 0) {
      u64 all = 0;
      for (unsigned r = 0; r < cluster_.num_blocks(); ++r)
        all = max(all, *cluster_.map_shared_rank(&shared_.exchange[turn_][0], r));
      shared_.total[0] = all;
    }
    __syncthreads();
    turn_ ^= 1;
    return shared_.total[0];
  }

  // Sum of the x of all threads before this one, blocks in the order of ids. total: of the block alone, if
  // asked for.
  __device__ u64 before(u64 x, bool of_block, u64* total = nullptr) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 inclusive = x;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const u64 up = __shfl_up_sync(~0U, inclusive, o);
      if (lane >= o) inclusive += up;
    }
    if (lane == 31) shared_.scan[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
      u64 w = shared_.scan[lane];
#pragma unroll
      for (int o = 1; o < 32; o <<= 1) {
        const u64 up = __shfl_up_sync(~0U, w, o);
        if (lane >= o) w += up;
      }
      shared_.scan[lane] = w;
      if (lane == 31) shared_.exchange[turn_][0] = w;
    }
    __syncthreads();
    u64 earlier = warp == 0 ? 0 : shared_.scan[warp - 1];
    if (total != nullptr) *total = shared_.scan[kWarps - 1];
    if (!of_block) {
      cluster_.sync();
      for (unsigned r = 0; r < cluster_.block_rank(); ++r)
        earlier += *cluster_.map_shared_rank(&shared_.exchange[turn_][0], r);
      turn_ ^= 1;
    }
    __syncthreads();  // scan is free again
    return earlier + inclusive - x;
  }

  // The largest key t for which enough(sum of the measures of all with key >= t); enough holds for t = 0.
  // each_measure(f) calls f(key, measure) for the thread's candidates.
  template <typename Each, typename Enough>
  __device__ u32 search(Each&& each_measure, Enough&& enough) {
    u64 t = 0;
    for (int shift = 30; shift >= 0; shift -= 3) {
      u64 sums[kWays] = {};
      each_measure([&](u32 key, u64 measure) {
#pragma unroll
        for (int j = 0; j < kWays; ++j)
          sums[j] += key >= t + (static_cast<u64>(j + 1) << shift) ? measure : 0;
      });
      sum(sums);
      int steps = 0;
#pragma unroll
      for (int j = 0; j < kWays; ++j) {
        if (enough(sums[j]) && t + (static_cast<u64>(j + 1) << shift) <= 0xFFFFFFFFU) steps = j + 1;
      }
      t += static_cast<u64>(steps) << shift;
    }
    return static_cast<u32>(t);
  }

  // Id of the n-th (1, 2, ..) candidate for which the thread's f(visit) visits: visit(id) in the order of
  // ids.
  template <typename Visit>
  __device__ int nth(u64 n, Visit&& visit_all) {
    u64 own = 0;
    visit_all([&](int) { ++own; });
    u64 at = before(own, false);
    u64 found = 0;
    visit_all([&](int id) {
      if (++at == n) found = static_cast<u64>(id) + 1;
    });
    return static_cast<int>(most(found)) - 1;
  }

  __device__ int& emitted() { return *cluster_.map_shared_rank(&shared_.emitted, 0); }
  __device__ Item* items() { return items_; }

 private:
  cg::cluster_group cluster_;
  Shared& shared_;
  float* values_;
  Item* items_;
  int begin_ = 0, count_ = 0, chunk_ = 1, turn_ = 0;
};

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

// The token of a row whose logits are edited; -1 when none may come.
__device__ int draw_token(Part& part, const DrawJob& job, int vocab) {
  u64 best = 0;  // key, then the lower id
  part.each([&](int, int id, float v) {
    const u32 key = key_of(v);
    if (key > kNever) best = max(best, static_cast<u64>(key) << 32 | (0xFFFFFFFFU - static_cast<u32>(id)));
  });
  best = part.most(best);
  if (best == 0) return -1;
  const int top = static_cast<int>(0xFFFFFFFFU - static_cast<u32>(best));
  if (job.temperature <= 0 || job.top_p <= 0 || job.top_k == 1) return top;

  Cut cut;
  if (job.top_k > 0 && job.top_k < vocab) keep_best(part, static_cast<u64>(job.top_k), cut);
  const double most = value_of(static_cast<u32>(best >> 32)),
               inverse = 1.0 / static_cast<double>(job.temperature);
  const auto weight = [&](int id, float v) -> u64 {
    if (!cut.keeps(key_of(v), id)) return 0;
    const double w = exp((static_cast<double>(v) - most) * inverse);
    return job.min_p > 0 && w < static_cast<double>(job.min_p) ? 0 : static_cast<u64>(w * kOne);
  };

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

__global__ void __launch_bounds__(kThreads, 1) draw_kernel(DrawView a) {
  extern __shared__ __align__(16) unsigned char raw[];
  __shared__ Shared shared;
  const auto blocks = static_cast<int>(cg::this_cluster().num_blocks());
  const int index = blockIdx.x / blocks;
  const DrawJob job = a.jobs[index];
  Part part(shared, reinterpret_cast<float*>(raw + kItems * sizeof(Item)), reinterpret_cast<Item*>(raw),
            a.vocab);
  const float* row = a.logits + job.row * a.stride;
  for (int i = threadIdx.x; i < part.count(); i += kThreads) part.value(i) = tidy(row[part.begin() + i]);
  if (threadIdx.x == 0) shared.emitted = 0;
  __syncthreads();
  part.sync();

  Softmax softmax{};
  if (job.logprobs >= 0) {
    softmax = softmax_of(part);
    if (job.logprobs > 0)
      write_top(part, softmax, job.logprobs, a.vocab, a.top + static_cast<std::int64_t>(index) * kMostTop);
  }
  int token = job.score;
  if (token < 0) {
    __syncthreads();
    edit(part, a, job);
    token = draw_token(part, job, a.vocab);
  }
  part.sync();  // all have read what others share, and written their best ones
  if (!part.first_block() || threadIdx.x != 0) return;
  a.kept.tokens[(a.first + static_cast<unsigned>(index)) & a.kept.mask] = token;
  const float logit = token < 0 ? 0 : row[token];
  a.results[index] = {token, isfinite(logit) ? 1 : 0, job.logprobs >= 0 ? softmax.at(logit) : 0,
                      shared.emitted};
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

void launch_draw(const DrawView& args, Stream stream) {
  const int blocks = args.vocab <= 8192 ? 1 : args.vocab <= 16384 ? 2 : args.vocab <= 32768 ? 4 : 8;
  const std::size_t shared =
      kItems * sizeof(Item) + static_cast<std::size_t>(ceil_div(args.vocab, blocks)) * sizeof(float);
  check_cuda(cudaFuncSetAttribute(draw_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared)),
             "shared memory");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.count * blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check_cuda(static_cast<int>(cudaLaunchKernelEx(&config, draw_kernel, args)), "launch of draw");
}

}  // namespace strata::cuda
