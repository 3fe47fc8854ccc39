// What OpenAI's two streams of chunks have in common: usage in a chunk of its own, errors as an event, "[DONE]".
#pragma once

#include <memory>

#include "server/answer_json.h"
#include "server/api_error.h"
#include "server/sse.h"

namespace strata {

// For the io thread. After done() or failed() nothing more may come.
class OpenAiStream {
 public:
  // `usage`: whether the caller asked for it.
  OpenAiStream(std::shared_ptr<Exchange> exchange, bool usage)
      : sse_(exchange), exchange_(std::move(exchange)), usage_(usage) {}

  // A chunk with one choice; `head` holds id, object, created and model.
  void chunk(Json head, Json choice);
  void done(Json head, const Json& usage);
  // A whole answer with the error's status while nothing is out yet.
  void failed(const ApiError& error);

 private:
  void end();

  SseWriter sse_;
  std::shared_ptr<Exchange> exchange_;
  bool usage_;
};

}  // namespace strata
