// Runs the choices of one API request on the engine and hands what they say to the API's writer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/choice_output.h"
#include "server/http.h"
#include "server/service.h"

namespace strata {

// Over all choices; a prompt that several choices share counts once.
struct UsageTotals {
  int prompt_tokens = 0, cached_tokens = 0;
  int completion_tokens = 0, reasoning_tokens = 0;
  int drafted_tokens = 0, accepted_tokens = 0;
};

// How one API writes an answer, streamed or whole. Called on the io thread, in order. After done() or
// failed() nothing more comes.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual void prompt_logprobs(int /*choice*/, const std::vector<TokenLogprob>&) {}
  // What a step adds; `state` is the choice after it (finished() when this is its last).
  virtual void output(int choice, const OutputDelta& delta, const ChoiceOutput& state,
                      const UsageTotals& so_far) = 0;
  virtual void done(const UsageTotals& usage) = 0;
  virtual void failed(const ApiError& error) = 0;
};

struct ChoicePlan {
  Request request;
  OutputOptions output;
  int prompt = 0;  // choices of equal number share their prompt
};

// Alive while the engine works for it. The client's leaving aborts all of it.
class Generation final : public std::enable_shared_from_this<Generation> {
 public:
  static void start(Service& service, std::shared_ptr<Exchange> exchange, std::vector<ChoicePlan> plans,
                    std::unique_ptr<AnswerWriter> writer);
  Generation(Service& service, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter> writer);

 private:
  struct Choice {
    RequestId id;
    ChoiceOutput output;
    Usage usage;
    int prompt;
  };
  void submit(std::vector<ChoicePlan> plans);
  void take(std::size_t choice, const Event& event);
  void fail(const ApiError& error);
  void abort_running();
  void close();
  UsageTotals totals() const;

  Service& service_;
  std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<AnswerWriter> writer_;
  std::vector<Choice> choices_;
  std::size_t finished_ = 0;
  int counted_ = 0;  // of service_.in_flight
  bool closed_ = false;
};

}  // namespace strata
