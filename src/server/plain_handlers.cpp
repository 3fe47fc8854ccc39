// Handlers without a generation: models, tokenize, detokenize, health.
#include "server/chat_prompt.h"
#include "server/handlers.h"

namespace strata {

void refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error) {
  exchange->respond(error_response(style_of(exchange->request().path), error));
}

namespace {

// Both OpenAI's fields and Anthropic's ("type", "display_name", "created_at"), so that either client reads
// it.
Json model_json(const Service& service, const std::string& name, bool adapter) {
  const ModelInfo& info = service.generator->info();
  return Json{{"id", name},
              {"object", "model"},
              {"created", service.started},
              {"owned_by", "strata"},
              {"type", "model"},
              {"display_name", name},
              {"root", info.name},
              {"parent", adapter ? Json(service.names.front()) : Json()},
              {"max_model_len", info.max_context}};
}

}  // namespace

void list_models(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Json data = Json::array();
  for (const std::string& name : service.names) data.push_back(model_json(service, name, false));
  for (const std::string& name : service.generator->adapters()) data.push_back(model_json(service, name, true));
  constexpr std::string_view kOne = "/v1/models/";
  const std::string& path = exchange->request().path;
  if (!path.starts_with(kOne))
    return exchange->respond(
        json_response(Json{{"object", "list"}, {"data", std::move(data)}, {"has_more", false}}));
  for (const Json& model : data)
    if (model["id"] == path.substr(kOne.size())) return exchange->respond(json_response(model));
  refuse(exchange, service.adapter_of(path.substr(kOne.size())).error());
}

void tokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(exchange, ApiError::from(body.error()));
  Fields fields(*body);
  std::vector<int> tokens;
  const bool with_texts =
      fields.flag("return_token_strs").value_or(false) || fields.flag("with_pieces").value_or(false);
  const bool special = fields.flag("add_special_tokens").value_or(fields.flag("add_special").value_or(true));
  const auto text = fields.text(fields.find("prompt") ? "prompt" : "content");
  const bool chat = !text && fields.find("messages");
  if (!text && !chat) fields.fail("prompt", "or messages must be there");
  if (fields.failed()) return refuse(exchange, ApiError::from(fields.error().value()));
  if (chat) {
    const auto conversation = read_conversation(fields);
    if (!conversation) return refuse(exchange, ApiError::from(conversation.error()));
    auto prompt = build_prompt(service, *conversation);
    if (!prompt) return refuse(exchange, ApiError::from(prompt.error()));
    tokens = std::move(prompt->tokens);
  } else {
    tokens = service.tokenizer->encode(*text, {.add_special = special, .parse_special = true});
  }
  Json out{
      {"count", tokens.size()}, {"max_model_len", service.generator->info().max_context}, {"tokens", tokens}};
  if (with_texts) {
    out["token_strs"] = Json::array();
    for (const int token : tokens)
      out["token_strs"].push_back(std::string(service.tokenizer->id_to_bytes(token)));
  }
  exchange->respond(json_response(out));
}

void detokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(exchange, ApiError::from(body.error()));
  Fields fields(*body);
  const Json* list = fields.array("tokens");
  const bool skip_special = fields.flag("skip_special_tokens").value_or(false);
  if (!list) fields.fail("tokens", "must be an array of token ids");
  if (fields.failed()) return refuse(exchange, ApiError::from(fields.error().value()));
  std::vector<int> tokens;
  const int size = service.tokenizer->vocab_size();
  for (const Json& token : *list) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 || token.get<std::int64_t>() >= size)
      return refuse(exchange,
                    {400, "tokens must hold ids from 0 to " + std::to_string(size - 1), "tokens", {}});
    tokens.push_back(token.get<int>());
  }
  const std::string text = service.tokenizer->decode(tokens, skip_special);
  exchange->respond(json_response(Json{{"prompt", text}, {"content", text}}));
}

void health(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const bool healthy = service.generator->healthy();
  HttpResponse response = json_response(Json{{"status", !healthy           ? "failed"
                                                        : service.draining ? "draining"
                                                                           : "ok"}});
  if (!healthy || service.draining) response.status = 503;
  exchange->respond(std::move(response));
}

void health_live(Service&, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(json_response(Json{{"status", "ok"}}));
}

}  // namespace strata
