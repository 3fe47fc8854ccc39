// POST /v1/responses, created whole or streamed; nothing is stored.
#include "server/answer_blocks.h"
#include "server/answer_json.h"
#include "server/handlers.h"
#include "server/responses_request.h"
#include "server/sse.h"
#include "server/structured.h"

namespace strata {
namespace {

Json usage_json(const UsageTotals& usage) {
  return Json{
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details",
       {{"reasoning_tokens", usage.reasoning_tokens}, {"accepted_prediction_tokens", usage.accepted_tokens}}},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// What the request said, as the response repeats it.
Json echo_json(const Json& body, const GenerationOptions& options) {
  Json out = Json::object();
  const auto copy = [&](const char* name, Json absent) {
    out[name] = body.contains(name) ? body[name] : std::move(absent);
  };
  copy("instructions", nullptr);
  copy("max_output_tokens", nullptr);
  copy("metadata", Json::object());
  copy("parallel_tool_calls", true);
  copy("previous_response_id", nullptr);
  copy("reasoning", Json{{"effort", nullptr}, {"summary", nullptr}});
  out["store"] = false;
  out["temperature"] = options.sampling.temperature;
  copy("text", Json{{"format", {{"type", "text"}}}});
  copy("tool_choice", "auto");
  copy("tools", Json::array());
  out["top_p"] = options.sampling.top_p;
  out["truncation"] = "disabled";
  copy("user", nullptr);
  return out;
}

class ResponseWriter : public AnswerWriter {
 public:
  ResponseWriter(std::shared_ptr<Exchange> exchange, std::string model, Json echo)
      : exchange_(std::move(exchange)), model_(std::move(model)), echo_(std::move(echo)) {}

 protected:
  // `status` is in_progress, completed, incomplete or failed.
  Json response_json(std::string_view status, const UsageTotals* usage, const ApiError* error) {
    Json out{
        {"id", id_},           {"object", "response"}, {"created_at", created_},       {"status", status},
        {"background", false}, {"error", nullptr},     {"incomplete_details", nullptr}};
    if (error) out["error"] = Json{{"code", "server_error"}, {"message", error->message}};
    if (status == "incomplete") out["incomplete_details"] = Json{{"reason", "max_output_tokens"}};
    out["model"] = model_;
    out["output"] = Json::array();
    if (status != "in_progress")
      for (std::size_t i = 0; i < blocks_.blocks().size(); ++i) out["output"].push_back(item_json(i, true));
    out.update(echo_);
    out["usage"] = usage ? usage_json(*usage) : Json();
    return out;
  }

  const std::string& item_id(std::size_t i) {
    static constexpr const char* kPrefixes[] = {"rs_", "msg_", "fc_"};
    while (item_ids_.size() <= i)
      item_ids_.push_back(make_id(kPrefixes[static_cast<int>(blocks_.blocks()[item_ids_.size()].kind)]));
    return item_ids_[i];
  }

  Json part_json(const AnswerBlock& block, bool whole) const {
    const std::string text = whole ? block.text : "";
    if (block.kind == AnswerBlock::Kind::kThinking) return Json{{"type", "reasoning_text"}, {"text", text}};
    return Json{
        {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  Json item_json(std::size_t i, bool whole) {
    const AnswerBlock& block = blocks_.blocks()[i];
    const bool last = i + 1 == blocks_.blocks().size();
    const char* status = !whole ? "in_progress" : last && cut_ ? "incomplete" : "completed";
    Json content = Json::array();
    if (whole && block.kind != AnswerBlock::Kind::kCall) content.push_back(part_json(block, true));
    switch (block.kind) {
      case AnswerBlock::Kind::kThinking:
        return Json{{"id", item_id(i)},
                    {"type", "reasoning"},
                    {"summary", Json::array()},
                    {"content", std::move(content)},
                    {"status", status}};
      case AnswerBlock::Kind::kText:
        return Json{{"id", item_id(i)},
                    {"type", "message"},
                    {"status", status},
                    {"role", "assistant"},
                    {"content", std::move(content)}};
      case AnswerBlock::Kind::kCall:
        break;
    }
    return Json{{"id", item_id(i)},    {"type", "function_call"}, {"status", status},
                {"call_id", block.id}, {"name", block.name},      {"arguments", whole ? block.text : ""}};
  }

  void note_end(const ChoiceOutput& state) { cut_ = state.finish() == FinishReason::kLength; }
  std::string_view final_status() const { return cut_ ? "incomplete" : "completed"; }

  std::shared_ptr<Exchange> exchange_;
  const std::string id_ = make_id("resp_"), model_;
  const std::int64_t created_ = unix_time();
  const Json echo_;
  AnswerBlocks blocks_;
  std::vector<std::string> item_ids_;
  bool cut_ = false;
};

class WholeResponse final : public ResponseWriter {
 public:
  using ResponseWriter::ResponseWriter;
  void output(int, const OutputDelta& delta, const ChoiceOutput& state, const UsageTotals&) override {
    note_end(state);
    blocks_.add(delta, state.finished());
  }
  void done(const UsageTotals& usage) override {
    exchange_->respond(json_response(response_json(final_status(), &usage, nullptr)));
  }
  void failed(const ApiError& error) override {
    exchange_->respond(error_response(ApiStyle::kOpenAi, error));
  }
};

class StreamedResponse final : public ResponseWriter {
 public:
  StreamedResponse(std::shared_ptr<Exchange> exchange, std::string model, Json echo)
      : ResponseWriter(exchange, std::move(model), std::move(echo)), sse_(std::move(exchange)) {}

  void output(int, const OutputDelta& delta, const ChoiceOutput& state, const UsageTotals&) override {
    if (!sse_.started()) {
      send("response.created", {{"response", response_json("in_progress", nullptr, nullptr)}});
      send("response.in_progress", {{"response", response_json("in_progress", nullptr, nullptr)}});
    }
    note_end(state);
    for (const BlockEvent& event : blocks_.add(delta, state.finished())) {
      if (event.kind == BlockEvent::Kind::kBegin) begin(event.block);
      if (event.kind == BlockEvent::Kind::kAdd) add(event.block, event.text);
      if (event.kind == BlockEvent::Kind::kEnd) end(event.block);
    }
  }

  void done(const UsageTotals& usage) override {
    const std::string status(final_status());
    send("response." + status, {{"response", response_json(status, &usage, nullptr)}});
    sse_.end();
  }

  void failed(const ApiError& error) override {
    if (!sse_.started()) return exchange_->respond(error_response(ApiStyle::kOpenAi, error));
    send("response.failed", {{"response", response_json("failed", nullptr, &error)}});
    sse_.end();
  }

 private:
  void send(const std::string& type, const Json& fields) {
    Json out{{"type", type}, {"sequence_number", sequence_++}};
    out.update(fields);
    sse_.event(out, type);
  }

  // The fields that place an event in the answer.
  Json place(std::size_t i) {
    Json out{{"item_id", item_id(i)}, {"output_index", i}};
    if (blocks_.blocks()[i].kind != AnswerBlock::Kind::kCall) out["content_index"] = 0;
    return out;
  }
  std::string text_event(std::size_t i) const {
    switch (blocks_.blocks()[i].kind) {
      case AnswerBlock::Kind::kThinking:
        return "response.reasoning_text";
      case AnswerBlock::Kind::kText:
        return "response.output_text";
      case AnswerBlock::Kind::kCall:
        break;
    }
    return "response.function_call_arguments";
  }

  void begin(std::size_t i) {
    send("response.output_item.added", {{"output_index", i}, {"item", item_json(i, false)}});
    if (blocks_.blocks()[i].kind == AnswerBlock::Kind::kCall) return;
    Json fields = place(i);
    fields["part"] = part_json(blocks_.blocks()[i], false);
    send("response.content_part.added", fields);
  }

  void add(std::size_t i, const std::string& text) {
    Json fields = place(i);
    fields["delta"] = text;
    if (blocks_.blocks()[i].kind == AnswerBlock::Kind::kText) fields["logprobs"] = Json::array();
    send(text_event(i) + ".delta", fields);
  }

  void end(std::size_t i) {
    const AnswerBlock& block = blocks_.blocks()[i];
    Json fields = place(i);
    if (block.kind == AnswerBlock::Kind::kCall) {
      fields["name"] = block.name;
      fields["arguments"] = block.text;
      send("response.function_call_arguments.done", fields);
    } else {
      Json text = fields;
      text["text"] = block.text;
      if (block.kind == AnswerBlock::Kind::kText) text["logprobs"] = Json::array();
      send(text_event(i) + ".done", text);
      fields["part"] = part_json(block, true);
      send("response.content_part.done", fields);
    }
    send("response.output_item.done", {{"output_index", i}, {"item", item_json(i, true)}});
  }

  SseWriter sse_;
  int sequence_ = 0;
};

}  // namespace

void openai_responses(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto refuse = [&](const ApiError& error) {
    exchange->respond(error_response(ApiStyle::kOpenAi, error));
  };
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(ApiError::from(body.error()));
  Fields fields(*body);
  const auto name = fields.text("model");
  GenerationOptions options = read_options(fields, service.generator->info(), "stop");
  options.max_tokens = static_cast<int>(fields.integer("max_output_tokens", 1, 1 << 30).value_or(-1));
  const Json* text = fields.object("text");
  if (fields.failed()) return refuse(ApiError::from(fields.error().value()));
  const auto adapter = service.adapter_of(name);
  if (!adapter) return refuse(adapter.error());
  const auto conversation = read_responses(fields);
  if (!conversation) return refuse(ApiError::from(conversation.error()));
  const auto prompt = build_prompt(service, *conversation);
  if (!prompt) return refuse(ApiError::from(prompt.error()));
  const auto constraint = answer_constraint(service, *conversation, *prompt,
                                            text ? Fields(*text).find("format") : nullptr, "text.format");
  if (!constraint) return refuse(ApiError::from(constraint.error()));

  ChoicePlan plan{make_request(options, prompt->tokens, *adapter, 0),
                  output_options(service, *conversation, *prompt), 0};
  apply(options, plan.output);
  plan.request.constraint = *constraint;
  std::vector<ChoicePlan> plans;
  plans.push_back(std::move(plan));
  const std::string model = name.value_or(service.names.front());
  std::unique_ptr<AnswerWriter> writer;
  if (options.stream)
    writer = std::make_unique<StreamedResponse>(exchange, model, echo_json(*body, options));
  else
    writer = std::make_unique<WholeResponse>(exchange, model, echo_json(*body, options));
  Generation::start(service, exchange, std::move(plans), std::move(writer));
}

}  // namespace strata
