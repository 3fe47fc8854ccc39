#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata {
namespace {

std::optional<ApiError> failure_of(const Event& event) {
  ApiError error;
  switch (event.finish) {
    case FinishReason::kError:
      error.status = 500;
      error.message = event.error;
      if (event.error.empty()) error.message = "the engine failed";
      return error;
    case FinishReason::kAborted:
      error.status = 503;
      error.message = "the server is shutting down";
      return error;
    case FinishReason::kDeadline:
      error.status = 504;
      error.message = "the request's timeout passed";
      error.param = "timeout";
      return error;
    default: return std::nullopt;
  }
}

}  // namespace

void Generation::start(Service& service, std::shared_ptr<Exchange> exchange, std::vector<ChoicePlan> plans,
                       std::unique_ptr<AnswerWriter> writer) {
  auto generation = std::make_shared<Generation>(service, std::move(exchange), std::move(writer));
  generation->submit(std::move(plans));
}

Generation::Generation(Service& service, std::shared_ptr<Exchange> exchange,
                       std::unique_ptr<AnswerWriter> writer)
    : service_(service), exchange_(std::move(exchange)), writer_(std::move(writer)) {}

void Generation::submit(std::vector<ChoicePlan> plans) {
  const int wanted = static_cast<int>(plans.size());
  if (service_.draining) return fail({503, "the server is shutting down", {}, {}});
  if (!service_.generator->healthy()) return fail({503, "the engine has stopped after an error", {}, {}});
  if (service_.in_flight + wanted > service_.max_in_flight)
    return fail({429,
                 fmt::format("{} generations are in flight, the limit is {}; try again", service_.in_flight,
                             service_.max_in_flight),
                 {},
                 {}});
  service_.in_flight += counted_ = wanted;
  exchange_->on_disconnect([self = shared_from_this()] {
    self->abort_running();
    self->close();
  });
  for (ChoicePlan& plan : plans) {
    const std::size_t index = choices_.size();
    EventSink sink = [self = shared_from_this(), index](Event&& event) {  // on the engine's thread
      self->exchange_->post([self, index, e = std::move(event)] { self->take(index, e); });
    };
    auto id = service_.generator->submit(std::move(plan.request), std::move(sink));
    if (!id) {
      abort_running();
      return fail(ApiError::from(id.error()));
    }
    choices_.push_back({*id, ChoiceOutput(*service_.tokenizer, std::move(plan.output)), {}, plan.prompt});
  }
}

void Generation::take(std::size_t index, const Event& event) {
  if (closed_) return;
  Choice& choice = choices_[index];
  if (choice.output.finished()) return;
  choice.usage = event.usage;
  if (const auto error = failure_of(event)) {
    abort_running();
    return fail(*error);
  }
  if (!event.prompt_logprobs.empty())
    writer_->prompt_logprobs(static_cast<int>(index), event.prompt_logprobs);
  const OutputDelta delta = choice.output.add(event);
  if (!delta.empty() || choice.output.finished())
    writer_->output(static_cast<int>(index), delta, choice.output, totals());
  if (!choice.output.finished()) return;
  if (choice.output.cut_short()) service_.generator->abort(choice.id);
  if (++finished_ < choices_.size()) return;
  writer_->done(totals());
  close();
}

UsageTotals Generation::totals() const {
  UsageTotals totals;
  int prompt = -1;
  for (const Choice& choice : choices_) {
    if (choice.prompt != prompt) {
      totals.prompt_tokens += choice.usage.prompt_tokens;
      totals.cached_tokens += choice.usage.cached_tokens;
    }
    prompt = choice.prompt;
    totals.completion_tokens += choice.output.tokens();
    totals.reasoning_tokens += choice.output.reasoning_tokens();
    totals.drafted_tokens += choice.usage.drafted_tokens;
    totals.accepted_tokens += std::min(choice.usage.accepted_tokens, choice.output.tokens());
  }
  return totals;
}

void Generation::abort_running() {
  for (const Choice& choice : choices_)
    if (!choice.output.finished()) service_.generator->abort(choice.id);
}

void Generation::fail(const ApiError& error) {
  writer_->failed(error);
  close();
}

void Generation::close() {
  if (std::exchange(closed_, true)) return;
  service_.in_flight -= std::exchange(counted_, 0);
}

}  // namespace strata
