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

constexpr std::uint64_t kInside = 0xffff, kOpen = 0x10000;  // bits of the gate; the loop's number is above them
constexpr int kLoopShift = 17;

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
  {
    // Under the lock, so that a worker about to park either sees the new loop or is woken. Nobody is inside.
    const std::lock_guard lock(mutex_);
    gate_.store(((gate_.load(std::memory_order_relaxed) >> kLoopShift) + 1) << kLoopShift | kOpen, std::memory_order_release);
  }
  wake_.notify_all();
  work();
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  // A worker inside for longer than a spin has probably lost its core: let it have this one.
  for (int spin = 0; (gate_.load(std::memory_order_acquire) & kInside) != 0; ++spin) {
    spin < kSpins ? relax() : std::this_thread::yield();
  }
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
  std::uint64_t seen = 0;  // number of the last loop
  const auto is_new = [&] { return gate_.load(std::memory_order_acquire) >> kLoopShift != seen; };
  while (!stop.stop_requested()) {
    for (int spin = 0; spin < kSpins && !is_new() && !stop.stop_requested(); ++spin) relax();
    if (!is_new()) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, is_new);
      if (stop.stop_requested()) return;
    }
    std::uint64_t gate = gate_.load(std::memory_order_acquire);
    seen = gate >> kLoopShift;
    while ((gate & kOpen) != 0 && gate >> kLoopShift == seen) {
      if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) continue;
      work();
      gate_.fetch_sub(1, std::memory_order_release);
      break;
    }
  }
}

}  // namespace strata
