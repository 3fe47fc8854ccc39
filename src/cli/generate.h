// Generation: one request of the engine, waited for by the calling thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/engine.h"

namespace strata {

// For one waiting thread; may be destroyed at any time, which aborts what still runs.
class Generation {
 public:
  // Throws Error when the engine refuses the request.
  Generation(Engine& engine, Request request);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // The next event, or nothing when none comes within `patience`. After the last one (finish != kNone) none will come.
  std::optional<Event> wait(std::chrono::milliseconds patience);
  void abort();

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable ready;
    std::deque<Event> events;
  };
  Engine& engine_;
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  RequestId id_ = 0;
  bool over_ = false;
};

}  // namespace strata
