// A row of logits over a cluster of blocks, in their shared memory: sums, maxima, searches (draw.cu).
#pragma once

#include <cooperative_groups.h>

#include "ops/cuda/draw.h"

namespace strata::cuda::drawing {

namespace cg = cooperative_groups;
using u32 = std::uint32_t;
using u64 = unsigned long long;

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kMostBlocks = 8;             // of a cluster
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
  int emitted, listed;
  int all_listed[kMostBlocks];
};

// Logits of a block of `blocks`: whole groups of four.
constexpr int slice_of(int vocab, int blocks) { return (vocab + 4 * blocks - 1) / (4 * blocks) * 4; }

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
    const int slice = slice_of(vocab, static_cast<int>(cluster_.num_blocks()));
    begin_ = min(vocab, slice * static_cast<int>(cluster_.block_rank()));
    count_ = min(vocab, begin_ + slice) - begin_;
    chunk_ = ((slice + kThreads - 1) / kThreads) | 1;  // odd: no bank conflicts
  }

  __device__ int begin() const { return begin_; }
  __device__ int count() const { return count_; }
  __device__ float& value(int i) { return values_[i]; }
  __device__ int blocks() const { return static_cast<int>(cluster_.num_blocks()); }
  __device__ bool first_block() const { return cluster_.block_rank() == 0; }
  __device__ void sync() { cluster_.sync(); }

  // Takes the block's logits of the row.
  __device__ void load(const float* row) {
    row += begin_;
    if (count_ % 4 != 0 || reinterpret_cast<std::uintptr_t>(row) % sizeof(float4) != 0) {
      for (int i = threadIdx.x; i < count_; i += kThreads) values_[i] = tidy(row[i]);
      return;
    }
#pragma unroll 8
    for (int i = threadIdx.x; i < count_ / 4; i += kThreads) {
      const float4 x = reinterpret_cast<const float4*>(row)[i];
      reinterpret_cast<float4*>(values_)[i] = {tidy(x.x), tidy(x.y), tidy(x.z), tidy(x.w)};
    }
  }

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
    const u64 block = most_of_block(x);
    if (threadIdx.x == 0) shared_.exchange[turn_][0] = block;
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

  __device__ u64 most_of_block(u64 x) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) x = max(x, __shfl_xor_sync(~0U, x, o));
    if (lane == 0) shared_.warp[warp][0] = x;
    __syncthreads();
    x = shared_.warp[lane][0];
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) x = max(x, __shfl_xor_sync(~0U, x, o));
    __syncthreads();  // warp is free again
    return x;
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

  // The values whose keys `takes` takes, of all blocks, in few() of the first block, in no order: the key
  // above the complement of the id, so that larger numbers are better. Their number; -1 when they are more
  // than kThreads.
  template <typename Takes>
  __device__ int gather(Takes&& takes) {
    if (threadIdx.x == 0) shared_.listed = 0;
    __syncthreads();
    u64* own = few() + kThreads;
    each([&](int, int id, float v) {
      const u32 key = key_of(v);
      if (key <= kNever || !takes(key)) return;
      const int at = atomicAdd(&shared_.listed, 1);
      if (at < kThreads) own[at] = static_cast<u64>(key) << 32 | (0xFFFFFFFFU - static_cast<u32>(id));
    });
    cluster_.sync();
    const int i = static_cast<int>(threadIdx.x);
    if (i < blocks()) shared_.all_listed[i] = *cluster_.map_shared_rank(&shared_.listed, i);
    __syncthreads();
    int all = 0, from = -1, at = 0;
    for (int r = 0; r < blocks(); ++r) {
      const int listed = shared_.all_listed[r];
      if (from < 0 && i < all + listed) from = r, at = i - all;
      all += listed;
    }
    if (all > kThreads) return -1;
    if (first_block() && from >= 0) few()[i] = cluster_.map_shared_rank(own, from)[at];
    __syncthreads();
    return all;
  }
  __device__ u64* few() { return reinterpret_cast<u64*>(items_); }
  // The n-th largest x of the block's threads, n at most kThreads.
  __device__ u32 nth_largest_of_block(u32 x, int n) {
    u32 t = 0;
    for (int bit = 31; bit >= 0; --bit) {
      const u32 more = t | 1U << bit;
      if (__syncthreads_count(x >= more) >= n) t = more;
    }
    return t;
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

}  // namespace strata::cuda::drawing
