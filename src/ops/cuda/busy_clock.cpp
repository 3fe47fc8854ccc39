#include "ops/cuda/busy_clock.h"

#include <cuda_runtime_api.h>

#include "ops/cuda/cuda_error.h"

namespace strata::cuda {

BusyClock::~BusyClock() {
  for (const Span& s : spans_) {
    cudaEventDestroy(s.begin);
    cudaEventDestroy(s.end);
  }
}

void BusyClock::part(StepPart part) {
  leave();
  part_ = part;
}

void BusyClock::enter() {
  if (open_) return;
  if (ended_ == spans_.size()) {
    Span s;
    check_cuda(cudaEventCreate(&s.begin), "event");
    check_cuda(cudaEventCreate(&s.end), "event");
    spans_.push_back(s);
  }
  spans_[ended_].part = part_;
  check_cuda(cudaEventRecord(spans_[ended_].begin, stream_), "event");
  open_ = true;
}

void BusyClock::leave() {
  if (!open_) return;
  check_cuda(cudaEventRecord(spans_[ended_].end, stream_), "event");
  ++ended_;
  open_ = false;
}

void BusyClock::settle() {
  for (std::size_t i = 0; i < ended_; ++i) {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, spans_[i].begin, spans_[i].end), "event");
    seconds_[static_cast<std::size_t>(spans_[i].part)] += ms * 1e-3;
  }
  ended_ = 0;
}

}  // namespace strata::cuda
