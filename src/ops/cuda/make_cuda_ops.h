// How the rest of Strata asks for the CUDA backend; no CUDA header behind it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ops/ops.h"

namespace strata {

struct CudaOptions {
  int device = 0;                              // as CUDA numbers them
  DType activation = DType::kBF16;             // kF32: every activation and weight in f32 (tests of exactness; slow)
  bool f8_activations = false;                 // products of many rows with f8 weights round x to f8 (e4m3, a scale a row)
  bool dummy_weights = false;                  // load() fills matrices on the device and reads only their shapes (speed)
  std::size_t arena_block = std::size_t{64} << 20;  // scratch grows by blocks of at least so many bytes
};

// Error when this machine has no usable GPU, naming what CUDA said.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options = {});

// Devices CUDA can use here; 0 when there is no driver. `why` (optional) receives CUDA's reason.
int cuda_devices(std::string* why = nullptr);

// Device memory that could still be allocated.
std::size_t cuda_free_bytes();

}  // namespace strata
