#include "server/openai_stream.h"

namespace strata {

void OpenAiStream::chunk(Json head, Json choice) {
  head["choices"] = Json::array();
  head["choices"].push_back(std::move(choice));
  if (usage_) head["usage"] = nullptr;
  sse_.event(head);
}

void OpenAiStream::done(Json head, const Json& usage) {
  if (usage_) {
    head["choices"] = Json::array();
    head["usage"] = usage;
    sse_.event(head);
  }
  end();
}

void OpenAiStream::failed(const ApiError& error) {
  if (!sse_.started()) return exchange_->respond(error_response(ApiStyle::kOpenAi, error));
  sse_.event(error_body(ApiStyle::kOpenAi, error));
  end();
}

void OpenAiStream::end() {
  sse_.text("[DONE]");
  sse_.end();
}

}  // namespace strata
