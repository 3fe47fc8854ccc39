// Any bytes as the body of a request: it becomes a conversation in one of three forms, or an error that says
// something.
#include <cstdlib>
#include <string_view>

#include "server/anthropic_request.h"
#include "server/generation_options.h"
#include "server/responses_request.h"

namespace {

void check(const strata::RequestError& error) {
  if (error.message.empty()) std::abort();
}

void read(const strata::Json& body, strata::Result<strata::Conversation> (*reader)(strata::Fields&)) {
  strata::Fields fields(body);
  const auto conversation = reader(fields);
  if (!conversation) return check(conversation.error());
  for (const bool keep_text : {false, true})
    if (const auto messages = strata::normal_messages(conversation->messages, keep_text); !messages)
      check(messages.error());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto body = strata::parse_json({reinterpret_cast<const char*>(data), size});
  if (!body) return check(body.error()), 0;
  strata::ModelInfo model;
  model.vocab_size = 1000;
  strata::Fields fields(*body);
  const auto options = strata::read_options(fields, model, "stop");
  if (fields.failed()) check(fields.error().value());
  for (const auto& [token, bias] : options.sampling.logit_bias)
    if (token < 0 || token >= model.vocab_size) std::abort();
  read(*body, strata::read_conversation);
  read(*body, strata::read_anthropic);
  read(*body, strata::read_responses);
  return 0;
}
