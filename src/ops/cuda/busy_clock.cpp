#include "ops/cuda/busy_clock.h"

#include <cuda_runtime_api.h>

#include <algorithm>

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
  std::size_t read = 0;
  for (; read < ended_; ++read) {
    const Span& s = spans_[read];
    if (cudaEventQuery(s.end) == cudaErrorNotReady) break;
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, s.begin, s.end), "event");
    seconds_[static_cast<std::size_t>(s.part)] += ms * 1e-3;
  }
  const auto at = [&](std::size_t i) { return spans_.begin() + static_cast<std::ptrdiff_t>(i); };
  std::rotate(at(0), at(read), at(ended_ + (open_ ? 1 : 0)));
  ended_ -= read;
}

}  // namespace strata::cuda
