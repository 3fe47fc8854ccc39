// POST /v1/completions: text or tokens in, text out, without a chat template.
#include <fmt/format.h>

#include "server/answer_json.h"
#include "server/handlers.h"
#include "server/openai_stream.h"
#include "server/structured.h"
#include "text/utf8.h"

namespace strata {
namespace {

struct CompletionCall {
  std::string id = make_id("cmpl-");
  std::int64_t created = unix_time();
  std::string model;
  std::vector<std::vector<int>> prompts;
  int per_prompt = 1;
  bool echo = false;
  bool logprobs = false;
  bool prompt_only = false;  // max_tokens 0: what the engine says beyond the prompt is dropped
  bool show_prompt_logprobs = false;

  std::size_t choices() const { return prompts.size() * static_cast<std::size_t>(per_prompt); }
  const std::vector<int>& prompt_of(int choice) const {
    return prompts[static_cast<std::size_t>(choice / per_prompt)];
  }
  Json head() const {
    return Json{{"id", id}, {"object", "text_completion"}, {"created", created}, {"model", model}};
  }
};

std::size_t characters(std::string_view text) {
  std::size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return n;
}

// The legacy form: parallel arrays, offsets in characters (a token counts the characters that begin in it).
class LegacyLogprobs {
 public:
  explicit LegacyLogprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(int token, const TokenLogprob* logprob) {
    tokens_.push_back(completion_token(tokenizer_, token));
    values_.push_back(logprob ? Json(finite(logprob->logprob)) : Json());
    Json top;
    if (logprob) {
      top = Json::object();
      for (const auto& [id, value] : logprob->top) top[completion_token(tokenizer_, id)] = finite(value);
    }
    top_.push_back(std::move(top));
    offsets_.push_back(offset_);
    offset_ += characters(tokenizer_.id_to_bytes(token));
  }

  Json take() {
    Json out{{"tokens", std::exchange(tokens_, Json::array())},
             {"token_logprobs", std::exchange(values_, Json::array())}};
    out["top_logprobs"] = std::exchange(top_, Json::array());
    out["text_offset"] = std::exchange(offsets_, Json::array());
    return out;
  }

 private:
  const Tokenizer& tokenizer_;
  Json tokens_ = Json::array(), values_ = Json::array(), top_ = Json::array(), offsets_ = Json::array();
  std::size_t offset_ = 0;
};

// Builds the pieces of every choice; the two writers below send them in one or as they come.
class CompletionWriter : public AnswerWriter {
 public:
  CompletionWriter(const Service& service, std::shared_ptr<Exchange> exchange, CompletionCall call)
      : service_(service), exchange_(std::move(exchange)), call_(std::move(call)) {
    for (std::size_t i = 0; i < call_.choices(); ++i)
      states_.push_back({LegacyLogprobs(*service_.tokenizer), {}, false});
  }

  void prompt_logprobs(int choice, const std::vector<TokenLogprob>& logprobs) override {
    states_[static_cast<std::size_t>(choice)].prompt_logprobs = logprobs;
  }

  void output(int choice, const OutputDelta& delta, const ChoiceOutput& state, const UsageTotals&) override {
    State& s = states_[static_cast<std::size_t>(choice)];
    std::string text;
    if (!std::exchange(s.begun, true) && call_.echo) text = echo(choice, s);
    if (!call_.prompt_only) {
      for (const ToolDelta& d : delta.rest) text += d.text;
      if (call_.logprobs)
        for (const TokenLogprob& token : delta.tokens) s.logprobs.add(token.token, &token);
    }
    const Json finish =
        !state.finished() ? Json()
                          : Json(call_.prompt_only ? "length" : finish_word(state, ToolChoice::Kind::kNamed));
    piece(choice, std::move(text), call_.logprobs ? s.logprobs.take() : Json(), finish);
  }

 protected:
  struct State {
    LegacyLogprobs logprobs;
    std::vector<TokenLogprob> prompt_logprobs;
    bool begun;
  };
  virtual void piece(int choice, std::string text, Json logprobs, const Json& finish) = 0;

  Json usage_json(UsageTotals usage) const {
    if (call_.prompt_only) usage.completion_tokens = 0;
    return openai_usage(usage);
  }

  Json prompt_json(int choice) const {
    return prompt_logprobs_json(*service_.tokenizer, call_.prompt_of(choice),
                                states_[static_cast<std::size_t>(choice)].prompt_logprobs);
  }

  std::string echo(int choice, State& s) {
    const std::vector<int>& prompt = call_.prompt_of(choice);
    Detokenizer detokenizer(*service_.tokenizer, {.skip_special = false});
    std::string all;
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      std::string text;
      detokenizer.add(prompt[i], text);
      if (i + 1 == prompt.size()) detokenizer.finish(text);
      const bool known = i > 0 && i - 1 < s.prompt_logprobs.size();
      if (call_.logprobs) s.logprobs.add(prompt[i], known ? &s.prompt_logprobs[i - 1] : nullptr);
      all += text;
    }
    return all;
  }

  const Service& service_;
  std::shared_ptr<Exchange> exchange_;
  CompletionCall call_;
  std::vector<State> states_;
};

class WholeCompletion final : public CompletionWriter {
 public:
  WholeCompletion(const Service& service, std::shared_ptr<Exchange> exchange, CompletionCall call)
      : CompletionWriter(service, std::move(exchange), std::move(call)), choices_(call_.choices()) {
    for (std::size_t i = 0; i < choices_.size(); ++i)
      choices_[i] = Json{{"index", i}, {"text", ""}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }

  void piece(int choice, std::string text, Json logprobs, const Json& finish) override {
    Json& to = choices_[static_cast<std::size_t>(choice)];
    to["text"].get_ref<std::string&>() += text;
    to["finish_reason"] = finish;
    if (to["logprobs"].is_null()) {
      to["logprobs"] = std::move(logprobs);
    } else {
      for (auto& [key, values] : to["logprobs"].items())
        for (Json& value : logprobs[key]) values.push_back(std::move(value));
    }
  }

  void done(const UsageTotals& usage) override {
    Json body = call_.head();
    if (call_.show_prompt_logprobs)
      for (std::size_t i = 0; i < choices_.size(); ++i)
        choices_[i]["prompt_logprobs"] = prompt_json(static_cast<int>(i));
    body["choices"] = std::move(choices_);
    body["usage"] = usage_json(usage);
    exchange_->respond(json_response(body));
  }

  void failed(const ApiError& error) override {
    exchange_->respond(error_response(ApiStyle::kOpenAi, error));
  }

 private:
  std::vector<Json> choices_;
};

class StreamedCompletion final : public CompletionWriter {
 public:
  StreamedCompletion(const Service& service, std::shared_ptr<Exchange> exchange, CompletionCall call,
                     bool usage)
      : CompletionWriter(service, exchange, std::move(call)), stream_(std::move(exchange), usage) {}

  void piece(int choice, std::string text, Json logprobs, const Json& finish) override {
    const bool silent =
        text.empty() && finish.is_null() && (logprobs.is_null() || logprobs["tokens"].empty());
    if (silent) return;
    Json item{{"index", choice},
              {"text", std::move(text)},
              {"logprobs", std::move(logprobs)},
              {"finish_reason", finish}};
    State& s = states_[static_cast<std::size_t>(choice)];
    if (call_.show_prompt_logprobs && !s.prompt_logprobs.empty()) {
      item["prompt_logprobs"] = prompt_json(choice);
      s.prompt_logprobs.clear();
    }
    stream_.chunk(call_.head(), std::move(item));
  }

  void done(const UsageTotals& usage) override { stream_.done(call_.head(), usage_json(usage)); }

  void failed(const ApiError& error) override { stream_.failed(error); }

 private:
  OpenAiStream stream_;
};

Result<std::vector<int>> token_array(const Json& list, int vocab_size) {
  std::vector<int> tokens;
  for (const Json& token : list) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 ||
        token.get<std::int64_t>() >= vocab_size)
      return bad_request(fmt::format("prompt must hold token ids from 0 to {}", vocab_size - 1), "prompt");
    tokens.push_back(token.get<int>());
  }
  return tokens;
}

// A text, tokens, or an array of either.
Result<std::vector<std::vector<int>>> read_prompts(const Service& service, Fields& fields) {
  const Json* prompt = fields.find("prompt");
  const bool special = fields.flag("add_special_tokens").value_or(true);
  if (fields.failed()) return fields.error();
  std::vector<std::vector<int>> out;
  const auto add = [&](const Json& one) -> std::optional<RequestError> {
    if (one.is_string()) {
      out.push_back(
          service.tokenizer->encode(one.get<std::string>(), {.add_special = special, .parse_special = true}));
    } else if (one.is_array()) {
      auto tokens = token_array(one, service.generator->info().vocab_size);
      if (!tokens) return tokens.error();
      out.push_back(std::move(*tokens));
    } else {
      return RequestError{"prompt must be a string, an array of tokens, or an array of those", "prompt"};
    }
    if (out.back().empty()) return RequestError{"the prompt is empty", "prompt"};
    return std::nullopt;
  };
  if (!prompt) return bad_request("prompt is missing", "prompt");
  const bool many = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!many) {
    if (auto error = add(*prompt)) return tl::unexpected<RequestError>(std::move(*error));
    return out;
  }
  if (prompt->size() > kMaxChoices)
    return bad_request(fmt::format("prompt holds more than {} prompts", kMaxChoices), "prompt");
  for (const Json& one : *prompt)
    if (auto error = add(one)) return tl::unexpected<RequestError>(std::move(*error));
  return out;
}

}  // namespace

void openai_completions(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto refuse = [&](const ApiError& error) {
    exchange->respond(error_response(ApiStyle::kOpenAi, error));
  };
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(ApiError::from(body.error()));
  Fields fields(*body);
  const ModelInfo& model = service.generator->info();
  const auto name = fields.text("model");
  GenerationOptions options = read_options(fields, model, "stop");
  CompletionCall call;
  const int limit =
      static_cast<int>(fields.integer("max_tokens", 0, 1 << 30).value_or(16));  // OpenAI's default
  const auto logprobs = read_top_logprobs(fields, "logprobs", model);
  const auto prompt_logprobs = read_top_logprobs(fields, "prompt_logprobs", model);
  call.echo = fields.flag("echo").value_or(false);
  if (const auto best = fields.integer("best_of", 1, kMaxChoices); best && *best != options.choices)
    fields.fail("best_of", "must equal n");
  if (!fields.text("suffix").value_or("").empty()) fields.fail("suffix", "is not supported");
  if (limit == 0 && !call.echo && !prompt_logprobs)
    fields.fail("max_tokens", "may be 0 only with echo or prompt_logprobs");
  if (fields.failed()) return refuse(ApiError::from(fields.error().value()));
  const auto adapter = service.adapter_of(name);
  if (!adapter) return refuse(adapter.error());
  auto constraint = read_response_format(service, fields.find("response_format"), "response_format");
  if (!constraint) return refuse(ApiError::from(constraint.error()));
  auto prompts = read_prompts(service, fields);
  if (!prompts) return refuse(ApiError::from(prompts.error()));
  if (prompts->size() * static_cast<std::size_t>(options.choices) > kMaxChoices)
    return refuse({400, fmt::format("prompts times n must be at most {}", kMaxChoices), "n", {}});

  options.max_tokens = std::max(1, limit);
  options.logprobs = logprobs.value_or(-1);
  options.prompt_logprobs = call.echo && logprobs ? *logprobs : prompt_logprobs.value_or(-1);
  call.model = name.value_or(service.names.front());
  call.prompts = std::move(*prompts);
  call.per_prompt = options.choices;
  call.logprobs = logprobs.has_value();
  call.prompt_only = limit == 0;
  call.show_prompt_logprobs = prompt_logprobs.has_value();

  std::vector<ChoicePlan> plans;
  for (std::size_t p = 0; p < call.prompts.size(); ++p)
    for (int i = 0; i < options.choices; ++i) {
      ChoicePlan plan{make_request(options, call.prompts[p], *adapter, i), {}, static_cast<int>(p)};
      plan.request.prompt_logprobs = options.prompt_logprobs;
      plan.output.end_tokens = model.end_tokens;
      apply(options, plan.output);
      if (*constraint) plan.request.constraint = (*constraint)->clone();
      plans.push_back(std::move(plan));
    }
  std::unique_ptr<AnswerWriter> writer;
  if (options.stream)
    writer = std::make_unique<StreamedCompletion>(service, exchange, std::move(call), options.stream_usage);
  else
    writer = std::make_unique<WholeCompletion>(service, exchange, std::move(call));
  Generation::start(service, exchange, std::move(plans), std::move(writer));
}

}  // namespace strata
