// Asynchronous copies into shared memory and the barriers (mbarrier) that say when they have landed. PTX ISA 8.
#pragma once

#include <cstdint>

#include "ops/cuda/tensor_map.h"

namespace strata::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
// After all barrier_init of a block, before anyone uses them (and a __syncthreads).
__device__ __forceinline__ void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives at the barrier that lies there in block `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive_at(std::uint64_t* barrier, int rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::
                   "r"(shared_address(barrier)), "r"(rank)
               : "memory");
}
// Arrives, and makes the phase wait for `bytes` of bulk copies too.
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::
          "r"(shared_address(barrier)), "r"(parity)
      : "memory");
}

// The box of `map` whose first element is (row, column).
__device__ __forceinline__ void copy_box(void* to, const TensorMap* map, int column, int row, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                   "r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
               : "memory");
}
// The same to the first two blocks of the cluster; each one's barrier at that place counts the bytes.
__device__ __forceinline__ void copy_box_to_both(void* to, const TensorMap* map, int column, int row, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::
          "r"(shared_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(static_cast<std::uint16_t>(3))
      : "memory");
}
__device__ __forceinline__ void copy_page(void* to, const TensorMap* map, int column, int page, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, 0, %3}], [%4];" ::
                   "r"(shared_address(to)), "l"(map), "r"(column), "r"(page), "r"(shared_address(barrier))
               : "memory");
}
// `bytes` (a multiple of 16) as they lie; both ends aligned to 16.
__device__ __forceinline__ void copy_bytes(void* to, const void* from, int bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// 16 bytes by an ordinary thread; fill: zeros instead.
__device__ __forceinline__ void copy_16(void* to, const void* from, bool fill) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(fill ? 0 : 16) : "memory");
}
__device__ __forceinline__ void copy_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }  // this thread's
// One arrival of this thread once its copy_16s so far have landed.
__device__ __forceinline__ void barrier_arrive_copies(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Between waiting for ordinary or copy_16 writes and the tensor cores' reading of them.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Position in a ring of stages.
template <int Stages>
struct Ring {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) stage = 0, parity ^= 1;
  }
};

}  // namespace strata::cuda
