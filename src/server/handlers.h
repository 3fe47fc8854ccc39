// Every route's handler; each is in the file of its name or its API's.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/service.h"

namespace strata {

void refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error);  // in the form of the path's API
void openai_chat(Service& service, const std::shared_ptr<Exchange>& exchange);  // openai_chat.cpp
void openai_completions(Service& service,
                        const std::shared_ptr<Exchange>& exchange);                  // openai_completions.cpp
void openai_responses(Service& service, const std::shared_ptr<Exchange>& exchange);  // openai_responses.cpp
void anthropic_messages(Service& service, const std::shared_ptr<Exchange>& exchange);  // anthropic.cpp
void anthropic_count_tokens(Service& service, const std::shared_ptr<Exchange>& exchange);
void list_models(Service& service, const std::shared_ptr<Exchange>& exchange);        // plain_handlers.cpp
void load_lora_adapter(Service& service, const std::shared_ptr<Exchange>& exchange);  // lora_handlers.cpp
void unload_lora_adapter(Service& service, const std::shared_ptr<Exchange>& exchange);
void tokenize(Service& service, const std::shared_ptr<Exchange>& exchange);
void detokenize(Service& service, const std::shared_ptr<Exchange>& exchange);
void health(Service& service, const std::shared_ptr<Exchange>& exchange);
void health_live(Service& service, const std::shared_ptr<Exchange>& exchange);
void metrics_page(Service& service, const std::shared_ptr<Exchange>& exchange);  // metrics_text.cpp
void chat_page(Service& service, const std::shared_ptr<Exchange>& exchange);     // chat_page.cpp

}  // namespace strata
