#include "server/answer_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace strata {

void CollectedChoice::add(const OutputDelta& delta, const ChoiceOutput& state) {
  reasoning += delta.reasoning;
  for (const ToolDelta& d : delta.rest) switch (d.kind) {
      case ToolDelta::Kind::kContent:
        content += d.text;
        break;
      case ToolDelta::Kind::kCallStart:
        calls.push_back({make_id("call_"), d.text, {}});
        break;
      case ToolDelta::Kind::kArguments:
        calls.back().arguments += d.text;
        break;
      case ToolDelta::Kind::kCallEnd:
        break;
    }
  tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
  finish = state.finish();
  stop = state.stop();
}

void apply(const GenerationOptions& options, OutputOptions& to) {
  to.stops = options.stops;
  to.include_stop = options.include_stop;
  to.skip_special = options.skip_special;
  to.logprobs = options.logprobs >= 0;
  to.end_tokens.insert(to.end_tokens.end(), options.stop_tokens.begin(), options.stop_tokens.end());
}

std::string_view finish_word(const ChoiceOutput& state, ToolChoice::Kind tool_choice) {
  if (state.finish() == FinishReason::kLength) return "length";
  return state.calls() > 0 && tool_choice != ToolChoice::Kind::kNamed ? "tool_calls" : "stop";
}

double finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

Json token_json(const Tokenizer& tokenizer, int token) {
  const std::string_view bytes = tokenizer.id_to_bytes(token);
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  Json out = Json::object();
  out["token"] = repair_utf8(bytes);
  out["bytes"] = std::move(numbers);
  return out;
}

std::string completion_token(const Tokenizer& tokenizer, int token) {
  const std::string_view bytes = tokenizer.id_to_bytes(token);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
  return out;
}

Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<int>& prompt,
                          const std::vector<TokenLogprob>& logprobs) {
  Json out = Json::array();
  if (!prompt.empty()) out.push_back(nullptr);
  for (const TokenLogprob& entry : logprobs) {
    Json item = Json::object();
    const auto add = [&](int token, float value) {
      item[std::to_string(token)] =
          Json{{"logprob", finite(value)}, {"decoded_token", completion_token(tokenizer, token)}};
    };
    add(entry.token, entry.logprob);
    for (const auto& [token, value] : entry.top) add(token, value);
    out.push_back(std::move(item));
  }
  return out;
}

Json chat_logprobs(const Tokenizer& tokenizer, const std::vector<TokenLogprob>& tokens) {
  const auto entry = [&](int token, float logprob) {
    const Json named = token_json(tokenizer, token);
    return Json{{"token", named["token"]}, {"logprob", finite(logprob)}, {"bytes", named["bytes"]}};
  };
  Json content = Json::array();
  for (const TokenLogprob& token : tokens) {
    Json item = entry(token.token, token.logprob);
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top) top.push_back(entry(id, logprob));
    item["top_logprobs"] = std::move(top);
    content.push_back(std::move(item));
  }
  return Json{{"content", std::move(content)}, {"refusal", nullptr}};
}

Json openai_usage(const UsageTotals& usage) {
  return Json{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
      {"completion_tokens_details",
       {{"reasoning_tokens", usage.reasoning_tokens},
        {"accepted_prediction_tokens", usage.accepted_tokens},
        {"rejected_prediction_tokens", std::max(0, usage.drafted_tokens - usage.accepted_tokens)}}},
  };
}

}  // namespace strata
