// Which experts have entries: found on the device, so that a launch needs no more than the number of entries.
#pragma once

namespace strata::cuda {

constexpr int kMostExperts = 1024;

// tiles_before[e] = tiles of the experts before e, [experts] of all, where tiles(n) are those of n entries; by the whole block
// (whole warps).
template <typename F>
__device__ __forceinline__ void count_tiles(const int* first, int experts, int* tiles_before, F&& tiles) {
  __shared__ int warp_sums[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
  int base = 0;
  for (int e0 = 0; e0 < experts; e0 += threads) {
    const int e = e0 + static_cast<int>(threadIdx.x);
    const int own = e < experts ? tiles(first[e + 1] - first[e]) : 0;
    int sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int before = __shfl_up_sync(~0U, sum, o);
      if (lane >= o) sum += before;
    }
    __syncthreads();
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int earlier = 0, all = 0;
    for (int w = 0; w < threads / 32; ++w) {
      earlier += w < warp ? warp_sums[w] : 0;
      all += warp_sums[w];
    }
    if (e < experts) tiles_before[e] = base + earlier + sum - own;
    base += all;
  }
  if (threadIdx.x == 0) tiles_before[experts] = base;
  __syncthreads();
}

// The expert whose tile is number `tile` / `each` of those counted.
__device__ __forceinline__ int expert_of_tile(const int* tiles_before, int experts, int tile, int each) {
  int low = 0, high = experts - 1;  // the last expert with tiles_before * each <= tile
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (tiles_before[middle] * each <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Number of the index-th expert (counting from 0) with at least one entry; -1 when there are not so many. first
// [experts + 1]. Call with a whole warp.
__device__ __forceinline__ int nth_active_expert(const int* first, int experts, int index) {
  constexpr int kTogether = 8;  // loads of a lane under way at once
  const int lane = threadIdx.x % 32;
  for (int base = 0; base < experts; base += 32 * kTogether) {
    bool active[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int e = base + 32 * i + lane;
      active[i] = e < experts && first[e + 1] > first[e];
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const unsigned votes = __ballot_sync(~0U, active[i]);
      const int count = __popc(votes);
      if (index >= 0 && index < count) return base + 32 * i + static_cast<int>(__fns(votes, 0, index + 1));
      index -= count;
    }
  }
  return -1;
}

}  // namespace strata::cuda
