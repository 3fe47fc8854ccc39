// Launch of put: few bytes from the host to the device, carried by the launch itself. A copy of them would
// wait for the kernel before and the kernel behind for it, each time from one engine of the device to
// another.
#pragma once

#include <cstddef>

#include "ops/cuda/stream.h"

namespace strata::cuda {

constexpr std::size_t kMostPutBytes = 8192;

// Up to 15 bytes behind `bytes` become zeros; `to` is a multiple of 16. The kernel launched next must wait
// for this one before it reads them (device/launch.cuh), as any does but those that read a batch ahead.
void launch_put(void* to, const void* from, std::size_t bytes, Stream stream);

}  // namespace strata::cuda
