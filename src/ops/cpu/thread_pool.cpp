#include "ops/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "base/check.h"

namespace strata {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int kSpins = 20000;  // about 50 to 400 us, longer than the gap between two ops of a step

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT(&set));
}

ThreadPool::ThreadPool(int threads) : size_(threads) {
  STRATA_CHECK(threads >= 1, "a pool of {} threads", threads);
  for (int i = 1; i < size_; ++i) {
    workers_.emplace_back([this, i](const std::stop_token& stop) { worker(i, stop); });
  }
}

ThreadPool::~ThreadPool() {
  for (auto& w : workers_) w.request_stop();
  wake_.notify_all();
}

void ThreadPool::run(std::int64_t count, Call call, void* body) {
  call_ = call;
  body_ = body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(size_ - 1, std::memory_order_relaxed);
  {
    // Under the lock, so that a worker about to park either sees the new loop or is woken.
    const std::lock_guard lock(mutex_);
    loop_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  work();
  while (busy_.load(std::memory_order_acquire) > 0) relax();
}

void ThreadPool::work() {
  for (std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_;
       i = next_.fetch_add(1, std::memory_order_relaxed)) {
    call_(body_, i);
  }
}

void ThreadPool::worker(int index, const std::stop_token& stop) {
  const std::string name = "strata-cpu-" + std::to_string(index);
  pthread_setname_np(pthread_self(), name.c_str());
  std::uint64_t seen = 0;
  while (!stop.stop_requested()) {
    for (int spin = 0; spin < kSpins && loop_.load(std::memory_order_acquire) == seen && !stop.stop_requested(); ++spin) relax();
    if (loop_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [&] { return loop_.load(std::memory_order_acquire) != seen; });
      if (stop.stop_requested()) return;
    }
    seen = loop_.load(std::memory_order_acquire);
    work();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace strata
