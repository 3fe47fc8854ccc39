#include "server/health_watch.h"

#include <condition_variable>
#include <mutex>

namespace strata {

HealthWatch::HealthWatch(const Generator& generator, HttpServer& server, std::chrono::milliseconds grace)
    : thread_([&generator, &server, grace](const std::stop_token& over) {
        constexpr std::chrono::milliseconds kEvery{100};
        std::mutex mutex;
        std::condition_variable_any asleep;
        std::unique_lock lock(mutex);
        const auto sleep = [&](std::chrono::milliseconds time) {  // false: this is being destroyed
          return !asleep.wait_for(lock, over, time, [&] { return over.stop_requested(); });
        };
        while (generator.healthy()) {
          if (!sleep(kEvery)) return;
        }
        if (sleep(grace)) server.stop();
      }) {}

}  // namespace strata
