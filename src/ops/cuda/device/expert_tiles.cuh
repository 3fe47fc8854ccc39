// Which experts have entries: found on the device, so that a launch needs no more than the number of entries.
#pragma once

namespace strata::cuda {

// Number of the index-th expert (counting from 0) with at least one entry; -1 when there are not so many. first
// [experts + 1]. Call with a whole warp.
__device__ __forceinline__ int nth_active_expert(const int* first, int experts, int index) {
  const int lane = threadIdx.x % 32;
  for (int base = 0; base < experts; base += 32) {
    const int e = base + lane;
    const unsigned active = __ballot_sync(~0U, e < experts && first[e + 1] > first[e]);
    const int count = __popc(active);
    if (index < count) return base + static_cast<int>(__fns(active, 0, index + 1));
    index -= count;
  }
  return -1;
}

}  // namespace strata::cuda
