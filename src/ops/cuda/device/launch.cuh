// Launching with programmatic dependent launch: a kernel may start while the one before it drains.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/cuda/cuda_error.h"

namespace strata::cuda {

// Every kernel of the backend calls wait_for_previous() before it touches what earlier kernels wrote, and then
// release_next(). Because the release comes after the wait, what lies before a kernel's own wait may read anything
// but the output of the kernel just before it: weights, and states of the step before.
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void release_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void begin_kernel() {
  wait_for_previous();
  release_next();
}

// In clusters of `cluster` blocks along x.
template <typename... Params, typename... Args>
void launch_clusters(void (*kernel)(Params...), dim3 grid, unsigned cluster, dim3 block, std::size_t shared, cudaStream_t stream,
                     Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  check_cuda(static_cast<int>(cudaLaunchKernelEx(&config, kernel, Params(args)...)), "launch");
}
template <typename... Params, typename... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream, Args&&... args) {
  launch_clusters(kernel, grid, 1, block, shared, stream, std::forward<Args>(args)...);
}

// Allows a kernel more than 48 KB of dynamic shared memory; asks the driver once.
template <auto Kernel, int Most>
void allow_shared() {
  [[maybe_unused]] static const bool asked = [] {
    check_cuda(cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Most), "shared memory");
    return true;
  }();
}

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace strata::cuda
