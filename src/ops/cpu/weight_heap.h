// WeightHeap: memory of matrices too small for huge pages of their own.
#pragma once

#include <cstddef>

#include "tensor/tensor.h"

namespace strata::cpu {

// Decoding reads every matrix once a step, in order, at the speed of memory: with 4 KiB pages a small model's
// misses of the translation cache cost it a fourth of that. So matrices share slabs of huge pages. A slab
// goes when the heap has begun another one and the last buffer in it is gone. One thread allocates; buffers
// may go on any, and may outlive the heap.
class WeightHeap {
 public:
  WeightHeap() = default;
  ~WeightHeap();
  WeightHeap(const WeightHeap&) = delete;
  WeightHeap& operator=(const WeightHeap&) = delete;

  // Zeroed, aligned to 64 bytes. Throws OutOfMemory.
  Buffer allocate(std::size_t bytes);

 private:
  std::byte* slab_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace strata::cpu
