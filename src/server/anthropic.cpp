// POST /v1/messages and /v1/messages/count_tokens (https://docs.anthropic.com/en/api/messages).
#include "server/answer_blocks.h"
#include "server/answer_json.h"
#include "server/anthropic_request.h"
#include "server/handlers.h"
#include "server/sse.h"

namespace strata {
namespace {

// The tokens read from the cache are not among the input tokens.
Json usage_json(const UsageTotals& usage) {
  return Json{{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", usage.cached_tokens},
              {"output_tokens", usage.completion_tokens}};
}

std::string_view stop_reason(const ChoiceOutput& state) {
  if (state.finish() == FinishReason::kLength) return "max_tokens";
  if (!state.stop().empty()) return "stop_sequence";
  return state.calls() > 0 ? "tool_use" : "end_turn";
}

Json block_json(const AnswerBlock& block, bool whole) {
  switch (block.kind) {
    case AnswerBlock::Kind::kThinking:
      return Json{{"type", "thinking"}, {"thinking", whole ? block.text : ""}, {"signature", ""}};
    case AnswerBlock::Kind::kText:
      return Json{{"type", "text"}, {"text", whole ? block.text : ""}};
    case AnswerBlock::Kind::kCall:
      break;
  }
  Json input = Json::object();
  if (whole)
    if (auto parsed = parse_json(block.text); parsed && parsed->is_object()) input = std::move(*parsed);
  return Json{{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", std::move(input)}};
}

class MessagesWriter : public AnswerWriter {
 public:
  MessagesWriter(std::shared_ptr<Exchange> exchange, std::string model)
      : exchange_(std::move(exchange)), model_(std::move(model)) {}

 protected:
  Json message_json() const {
    return Json{{"id", id_},
                {"type", "message"},
                {"role", "assistant"},
                {"model", model_},
                {"content", Json::array()},
                {"stop_reason", nullptr},
                {"stop_sequence", nullptr}};
  }
  void note_end(const ChoiceOutput& state) {
    if (!state.finished()) return;
    reason_ = stop_reason(state);
    if (!state.stop().empty()) sequence_ = state.stop();
  }

  std::shared_ptr<Exchange> exchange_;
  const std::string model_, id_ = make_id("msg_");
  AnswerBlocks blocks_;
  Json reason_, sequence_;
};

class WholeMessage final : public MessagesWriter {
 public:
  using MessagesWriter::MessagesWriter;
  void output(int, const OutputDelta& delta, const ChoiceOutput& state, const UsageTotals&) override {
    blocks_.add(delta, state.finished());
    note_end(state);
  }
  void done(const UsageTotals& usage) override {
    Json body = message_json();
    for (const AnswerBlock& block : blocks_.blocks()) body["content"].push_back(block_json(block, true));
    body["stop_reason"] = reason_;
    body["stop_sequence"] = sequence_;
    body["usage"] = usage_json(usage);
    exchange_->respond(json_response(body));
  }
  void failed(const ApiError& error) override {
    exchange_->respond(error_response(ApiStyle::kAnthropic, error));
  }
};

class StreamedMessage final : public MessagesWriter {
 public:
  StreamedMessage(std::shared_ptr<Exchange> exchange, std::string model)
      : MessagesWriter(exchange, std::move(model)), sse_(std::move(exchange)) {}

  void output(int, const OutputDelta& delta, const ChoiceOutput& state, const UsageTotals& usage) override {
    if (!sse_.started()) {
      Json message = message_json();
      message["usage"] = usage_json(usage);
      send("message_start", {{"message", std::move(message)}});
    }
    for (const BlockEvent& event : blocks_.add(delta, state.finished())) send_block(event);
    note_end(state);
  }

  void done(const UsageTotals& usage) override {
    send("message_delta",
         {{"delta", {{"stop_reason", reason_}, {"stop_sequence", sequence_}}}, {"usage", usage_json(usage)}});
    send("message_stop", Json::object());
    sse_.end();
  }

  void failed(const ApiError& error) override {
    if (!sse_.started()) return exchange_->respond(error_response(ApiStyle::kAnthropic, error));
    sse_.event(error_body(ApiStyle::kAnthropic, error), "error");
    sse_.end();
  }

 private:
  void send(const char* type, const Json& fields) {
    Json out{{"type", type}};
    out.update(fields);
    sse_.event(out, type);
  }

  void send_block(const BlockEvent& event) {
    const AnswerBlock& block = blocks_.blocks()[event.block];
    switch (event.kind) {
      case BlockEvent::Kind::kBegin:
        return send("content_block_start",
                    {{"index", event.block}, {"content_block", block_json(block, false)}});
      case BlockEvent::Kind::kEnd:
        return send("content_block_stop", {{"index", event.block}});
      case BlockEvent::Kind::kAdd:
        break;
    }
    Json delta{{"type", "text_delta"}, {"text", event.text}};
    if (block.kind == AnswerBlock::Kind::kThinking)
      delta = Json{{"type", "thinking_delta"}, {"thinking", event.text}};
    if (block.kind == AnswerBlock::Kind::kCall)
      delta = Json{{"type", "input_json_delta"}, {"partial_json", event.text}};
    send("content_block_delta", {{"index", event.block}, {"delta", std::move(delta)}});
  }

  SseWriter sse_;
};

}  // namespace

void anthropic_messages(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(exchange, ApiError::from(body.error()));
  Fields fields(*body);
  const auto name = fields.text("model");
  GenerationOptions options = read_options(fields, service.generator->info(), "stop_sequences");
  const auto limit = fields.integer("max_tokens", 1, 1 << 30);
  if (!limit) fields.fail("max_tokens", "is missing");
  if (fields.failed()) return refuse(exchange, ApiError::from(fields.error().value()));
  const auto adapter = service.adapter_of(name);
  if (!adapter) return refuse(exchange, adapter.error());
  const auto conversation = read_anthropic(fields);
  if (!conversation) return refuse(exchange, ApiError::from(conversation.error()));
  const auto prompt = build_prompt(service, *conversation);
  if (!prompt) return refuse(exchange, ApiError::from(prompt.error()));

  options.max_tokens = static_cast<int>(*limit);
  ChoicePlan plan{make_request(options, prompt->tokens, *adapter, 0),
                  output_options(service, *conversation, *prompt), 0};
  apply(options, plan.output);
  std::vector<ChoicePlan> plans;
  plans.push_back(std::move(plan));
  const std::string model = name.value_or(service.names.front());
  std::unique_ptr<AnswerWriter> writer;
  if (options.stream)
    writer = std::make_unique<StreamedMessage>(exchange, model);
  else
    writer = std::make_unique<WholeMessage>(exchange, model);
  Generation::start(service, exchange, std::move(plans), std::move(writer));
}

void anthropic_count_tokens(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(exchange, ApiError::from(body.error()));
  Fields fields(*body);
  const auto adapter = service.adapter_of(fields.text("model"));
  if (!adapter) return refuse(exchange, adapter.error());
  const auto conversation = read_anthropic(fields);
  if (!conversation) return refuse(exchange, ApiError::from(conversation.error()));
  const auto prompt = build_prompt(service, *conversation);
  if (!prompt) return refuse(exchange, ApiError::from(prompt.error()));
  exchange->respond(json_response(Json{{"input_tokens", prompt->tokens.size()}}));
}

}  // namespace strata
