// Scratch memory of a piece of a parallel loop.
#pragma once

#include <cstddef>

#include "tensor/tensor.h"

namespace strata {

// At least `floats` floats of the calling thread's own, aligned to 64 bytes; valid until its next call;
// contents undefined. It grows and stays, so that the steady state allocates nothing.
inline float* worker_scratch(std::size_t floats) {
  thread_local Buffer buffer;
  if (buffer.bytes() < floats * sizeof(float)) buffer = Buffer::host(floats * sizeof(float) * 5 / 4);
  return reinterpret_cast<float*>(buffer.data());
}

}  // namespace strata
