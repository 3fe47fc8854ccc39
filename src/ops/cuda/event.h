// Event: a place in a stream that the host can wait for.
#pragma once

#include <utility>

#include "ops/cuda/stream.h"

struct CUevent_st;

namespace strata::cuda {

class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream);
  // Returns when all that was enqueued before the latest record() has run; false if it had already. Error if
  // it failed.
  bool wait();

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace strata::cuda
