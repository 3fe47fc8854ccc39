// ThreadPool: a fixed set of threads that share the pieces of one loop at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace strata {

// The calling thread takes part, so a pool of 1 has no thread of its own. Workers spin for a moment after a loop, then
// park. A loop ends when its pieces are done, not when every worker has seen it: one that wakes late, or has lost its core to
// another process, is not waited for. One caller at a time; `body` must not throw and must not call the pool.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // at least 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls body(i) for every i in [0, count), pieces handed out in order to whichever thread is free; returns when all are done.
  template <typename Body>
  void parallel_for(std::int64_t count, Body&& body) {
    if (size_ == 1 || count <= 1) {
      for (std::int64_t i = 0; i < count; ++i) body(i);
      return;
    }
    run(count, [](void* b, std::int64_t i) { (*static_cast<std::remove_reference_t<Body>*>(b))(i); }, &body);
  }

 private:
  using Call = void (*)(void* body, std::int64_t i);
  void run(std::int64_t count, Call call, void* body);
  void work();                // takes pieces of the current loop until none is left
  void worker(int index, const std::stop_token& stop);

  int size_;
  Call call_ = nullptr;
  void* body_ = nullptr;
  std::int64_t count_ = 0;
  alignas(64) std::atomic<std::int64_t> next_{0};
  // Number of the current loop, whether workers may still join it, and how many are inside (thread_pool.cpp).
  alignas(64) std::atomic<std::uint64_t> gate_{0};
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<std::jthread> workers_;
};

// Cores this process may run on (its affinity mask).
int available_cores();

}  // namespace strata
