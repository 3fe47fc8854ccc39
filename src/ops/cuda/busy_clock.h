// BusyClock: CUDA events around what is enqueued without a break, read once it has run.
#pragma once

#include <array>
#include <vector>

#include "ops/cuda/stream.h"
#include "ops/device_clock.h"

struct CUevent_st;

namespace strata::cuda {

// Of one stream; one thread.
class BusyClock {
 public:
  explicit BusyClock(Stream stream) : stream_(stream) {}
  ~BusyClock();
  BusyClock(const BusyClock&) = delete;
  BusyClock& operator=(const BusyClock&) = delete;

  void part(StepPart part);  // also leaves
  void enter();              // something is about to be enqueued; not while the stream is captured
  void leave();              // nothing comes for now
  void settle();             // reads what has run; after a wait
  double seconds(StepPart part) const { return seconds_[static_cast<std::size_t>(part)]; }

 private:
  struct Span {
    CUevent_st *begin = nullptr, *end = nullptr;
    StepPart part = StepPart::kForward;
  };

  Stream stream_;
  StepPart part_ = StepPart::kForward;
  std::vector<Span> spans_;  // the first `ended_` wait to be read, one more may be open
  std::size_t ended_ = 0;
  bool open_ = false;
  std::array<double, kStepParts> seconds_{};
};

}  // namespace strata::cuda
