#include "ops/cuda/event.h"

#include <cuda_runtime_api.h>

#include "ops/cuda/cuda_error.h"

namespace strata::cuda {

Event::Event() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event"); }

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void Event::record(Stream stream) { check_cuda(cudaEventRecord(event_, stream), "event"); }

bool Event::wait() {
  const cudaError_t done = cudaEventQuery(event_);
  if (done != cudaErrorNotReady) {
    check_cuda(done, "step");
    return false;
  }
  check_cuda(cudaEventSynchronize(event_), "step");
  return true;
}

}  // namespace strata::cuda
