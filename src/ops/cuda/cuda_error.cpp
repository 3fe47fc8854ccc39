#include "ops/cuda/cuda_error.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace strata::cuda {

void check_cuda(int code, const char* what) {
  if (code == cudaSuccess) return;
  const auto error = static_cast<cudaError_t>(code);
  throw Error("CUDA {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace strata::cuda
