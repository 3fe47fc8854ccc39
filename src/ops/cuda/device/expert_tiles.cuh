// Which experts have entries: found on the device, so that a launch needs no more than the number of entries.
#pragma once

namespace strata::cuda {

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
