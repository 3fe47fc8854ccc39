#include "cli/generate.h"

#include "base/error.h"

namespace strata {

Generation::Generation(Engine& engine, Request request) : engine_(engine) {
  const auto id = engine.submit(std::move(request), [queue = queue_](Event&& e) {
    const std::lock_guard lock(queue->mutex);
    queue->events.push_back(std::move(e));
    queue->ready.notify_one();
  });
  if (!id) throw Error("{}", id.error().message);
  id_ = *id;
}

Generation::~Generation() {
  if (!over_) abort();
}

std::optional<Event> Generation::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(queue_->mutex);
  if (!queue_->ready.wait_for(lock, patience, [&] { return !queue_->events.empty(); })) return {};
  Event e = std::move(queue_->events.front());
  queue_->events.pop_front();
  over_ = e.finish != FinishReason::kNone;
  return e;
}

void Generation::abort() { engine_.abort(id_); }

}  // namespace strata
