#include "server/answer_json.h"
#include "server/chat_prompt.h"
#include "server/generation.h"
#include "server/generation_options.h"
#include "server/handlers.h"
#include "server/openai_stream.h"
#include "server/structured.h"

namespace strata {
namespace {

struct ChatAnswer {
  std::string id = make_id("chatcmpl-");
  std::int64_t created = unix_time();
  std::string model;
  ToolChoice::Kind tool_choice = ToolChoice::Kind::kAuto;
  bool logprobs = false;

  Json head(const char* object) const {
    return Json{{"id", id}, {"object", object}, {"created", created}, {"model", model}};
  }
};

class WholeChat final : public AnswerWriter {
 public:
  WholeChat(const Service& service, std::shared_ptr<Exchange> exchange, ChatAnswer answer, int choices)
      : service_(service),
        exchange_(std::move(exchange)),
        answer_(std::move(answer)),
        choices_(static_cast<std::size_t>(choices)),
        finish_(choices_.size()) {}

  void output(int choice, const OutputDelta& delta, const ChoiceOutput& state, const UsageTotals&) override {
    choices_[static_cast<std::size_t>(choice)].add(delta, state);
    if (state.finished()) finish_[static_cast<std::size_t>(choice)] = finish_word(state, answer_.tool_choice);
  }

  void done(const UsageTotals& usage) override {
    Json body = answer_.head("chat.completion");
    body["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) body["choices"].push_back(choice_json(i));
    body["usage"] = openai_usage(usage);
    exchange_->respond(json_response(body));
  }

  void failed(const ApiError& error) override {
    exchange_->respond(error_response(ApiStyle::kOpenAi, error));
  }

 private:
  Json choice_json(std::size_t i) const {
    const CollectedChoice& choice = choices_[i];
    Json message{{"role", "assistant"}};
    message["content"] = choice.content.empty() && (!choice.calls.empty() || !choice.reasoning.empty())
                             ? Json()
                             : Json(choice.content);
    if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
    if (!choice.calls.empty()) {
      message["tool_calls"] = Json::array();
      for (const CollectedCall& call : choice.calls)
        message["tool_calls"].push_back({{"id", call.id},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    Json out{{"index", i}, {"message", std::move(message)}};
    out["logprobs"] = answer_.logprobs ? chat_logprobs(*service_.tokenizer, choice.tokens) : Json();
    out["finish_reason"] = finish_[i];
    return out;
  }

  const Service& service_;
  std::shared_ptr<Exchange> exchange_;
  ChatAnswer answer_;
  std::vector<CollectedChoice> choices_;
  std::vector<std::string> finish_;
};

class StreamedChat final : public AnswerWriter {
 public:
  StreamedChat(const Service& service, std::shared_ptr<Exchange> exchange, ChatAnswer answer, int choices,
               bool usage)
      : service_(service),
        stream_(std::move(exchange), usage),
        answer_(std::move(answer)),
        opened_(static_cast<std::size_t>(choices)) {}

  void output(int choice, const OutputDelta& delta, const ChoiceOutput& state, const UsageTotals&) override {
    if (!opened_[static_cast<std::size_t>(choice)]) {
      opened_[static_cast<std::size_t>(choice)] = true;
      chunk(choice, {{"role", "assistant"}, {"content", ""}}, {}, nullptr);
    }
    tokens_ = answer_.logprobs ? delta.tokens : std::vector<TokenLogprob>();
    if (!delta.reasoning.empty()) piece(choice, {{"reasoning_content", delta.reasoning}});
    for (const ToolDelta& d : delta.rest) switch (d.kind) {
        case ToolDelta::Kind::kContent:
          piece(choice, {{"content", d.text}});
          break;
        case ToolDelta::Kind::kCallStart: {
          const Json function{{"name", d.text}, {"arguments", ""}};
          call(choice,
               {{"index", d.call}, {"id", make_id("call_")}, {"type", "function"}, {"function", function}});
          break;
        }
        case ToolDelta::Kind::kArguments:
          call(choice, {{"index", d.call}, {"function", {{"arguments", d.text}}}});
          break;
        case ToolDelta::Kind::kCallEnd:
          break;
      }
    if (!tokens_.empty()) piece(choice, Json::object());  // tokens without text
    if (state.finished()) chunk(choice, Json::object(), {}, finish_word(state, answer_.tool_choice));
  }

  void done(const UsageTotals& usage) override {
    stream_.done(answer_.head("chat.completion.chunk"), openai_usage(usage));
  }

  void failed(const ApiError& error) override { stream_.failed(error); }

 private:
  void call(int choice, Json call) {
    Json calls = Json::array();
    calls.push_back(std::move(call));
    Json delta = Json::object();
    delta["tool_calls"] = std::move(calls);
    piece(choice, std::move(delta));
  }

  // The first piece of a step carries its tokens.
  void piece(int choice, Json delta) { chunk(choice, std::move(delta), std::exchange(tokens_, {}), nullptr); }

  void chunk(int choice, Json delta, const std::vector<TokenLogprob>& tokens, Json finish) {
    Json item{{"index", choice}, {"delta", std::move(delta)}};
    item["logprobs"] = tokens.empty() ? Json() : chat_logprobs(*service_.tokenizer, tokens);
    item["finish_reason"] = std::move(finish);
    stream_.chunk(answer_.head("chat.completion.chunk"), std::move(item));
  }

  const Service& service_;
  OpenAiStream stream_;
  ChatAnswer answer_;
  std::vector<bool> opened_;
  std::vector<TokenLogprob> tokens_;
};

}  // namespace

void openai_chat(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto refuse = [&](const ApiError& error) {
    exchange->respond(error_response(ApiStyle::kOpenAi, error));
  };
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(ApiError::from(body.error()));
  Fields fields(*body);
  const ModelInfo& model = service.generator->info();
  const auto name = fields.text("model");
  GenerationOptions options = read_options(fields, model, "stop");
  const auto limit = fields.integer("max_tokens", 1, 1 << 30);
  options.max_tokens =
      static_cast<int>(fields.integer("max_completion_tokens", 1, 1 << 30).value_or(limit.value_or(-1)));
  const bool logprobs = fields.flag("logprobs").value_or(false);
  const auto top = read_top_logprobs(fields, "top_logprobs", model);
  if (top && !logprobs) fields.fail("top_logprobs", "needs logprobs to be true");
  if (logprobs) options.logprobs = top.value_or(0);
  if (fields.failed()) return refuse(ApiError::from(fields.error().value()));
  const auto adapter = service.adapter_of(name);
  if (!adapter) return refuse(adapter.error());
  auto conversation = read_conversation(fields);
  if (!conversation) return refuse(ApiError::from(conversation.error()));
  const auto prompt = build_prompt(service, *conversation);
  if (!prompt) return refuse(ApiError::from(prompt.error()));
  auto constraint =
      answer_constraint(service, *conversation, *prompt, fields.find("response_format"), "response_format");
  if (!constraint) return refuse(ApiError::from(constraint.error()));

  std::vector<ChoicePlan> plans;
  for (int i = 0; i < options.choices; ++i) {
    ChoicePlan plan{make_request(options, prompt->tokens, *adapter, i),
                    output_options(service, *conversation, *prompt), 0};
    apply(options, plan.output);
    if (*constraint) plan.request.constraint = (*constraint)->clone();
    plans.push_back(std::move(plan));
  }
  ChatAnswer answer;
  answer.model = name.value_or(service.names.front());
  answer.tool_choice = conversation->tool_choice.kind;
  answer.logprobs = logprobs;
  std::unique_ptr<AnswerWriter> writer;
  if (options.stream)
    writer = std::make_unique<StreamedChat>(service, exchange, answer, options.choices, options.stream_usage);
  else
    writer = std::make_unique<WholeChat>(service, exchange, answer, options.choices);
  Generation::start(service, exchange, std::move(plans), std::move(writer));
}

}  // namespace strata
