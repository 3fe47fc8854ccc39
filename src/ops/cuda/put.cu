// put: numbers that come as a kernel's arguments.
#include <cstring>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/put.h"

namespace strata::cuda {
namespace {

template <std::size_t Bytes>
struct Put {
  uint4* to;
  int words;
  uint4 from[Bytes / sizeof(uint4)];
};

template <std::size_t Bytes>
__global__ void put_kernel(const __grid_constant__ Put<Bytes> a) {
  begin_kernel();
  for (int i = static_cast<int>(threadIdx.x); i < a.words; i += static_cast<int>(blockDim.x))
    a.to[i] = a.from[i];
}

template <std::size_t Bytes>
void start(void* to, const void* from, std::size_t bytes, Stream stream) {
  Put<Bytes> a;
  a.to = static_cast<uint4*>(to);
  a.words = static_cast<int>((bytes + sizeof(uint4) - 1) / sizeof(uint4));
  std::memcpy(a.from, from, bytes);
  std::memset(reinterpret_cast<char*>(a.from) + bytes, 0,
              static_cast<std::size_t>(a.words) * sizeof(uint4) - bytes);
  launch(put_kernel<Bytes>, dim3(1), dim3(128), 0, stream, a);
}

}  // namespace

void launch_put(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  bytes <= 1024 ? start<1024>(to, from, bytes, stream) : start<kMostPutBytes>(to, from, bytes, stream);
}

}  // namespace strata::cuda
