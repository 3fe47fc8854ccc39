// Work items laid out sequence by sequence: which sequence an item belongs to, found on the device.
#pragma once

namespace strata::cuda {

struct RaggedItem {
  int sequence;  // -1: there are not so many items
  int inside;    // number of the item within its sequence
};

// Items of all sequences; count(s) >= 0 of each. With a whole warp.
template <typename Count>
__device__ __forceinline__ int ragged_total(int sequences, const Count& count) {
  const int lane = threadIdx.x % 32;
  int total = 0;
  for (int s = lane; s < sequences; s += 32) total += count(s);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) total += __shfl_xor_sync(~0U, total, o);
  return total;
}

// The item with number `item` >= 0. With a whole warp.
template <typename Count>
__device__ __forceinline__ RaggedItem ragged_item(int sequences, int item, const Count& count) {
  const int lane = threadIdx.x % 32;
  for (int base = 0; base < sequences; base += 32) {
    const int own = base + lane < sequences ? count(base + lane) : 0;
    int sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int before = __shfl_up_sync(~0U, sum, o);
      if (lane >= o) sum += before;
    }
    const int all = __shfl_sync(~0U, sum, 31);
    if (item < all) {
      const int owner = __ffs(static_cast<int>(__ballot_sync(~0U, sum > item))) - 1;
      return {base + owner, item - __shfl_sync(~0U, sum - own, owner)};
    }
    item -= all;
  }
  return {-1, 0};
}

}  // namespace strata::cuda
