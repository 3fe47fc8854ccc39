#include "server/choice_output.h"

#include <algorithm>
#include <utility>

namespace strata {

ChoiceOutput::ChoiceOutput(const Tokenizer& tokenizer, OutputOptions options)
    : options_(std::move(options)),
      text_(tokenizer, {{.skip_special = options_.skip_special, .at_start = false},
                        options_.stops,
                        options_.include_stop}),
      thinking_(options_.thinking_open),
      parser_(options_.tools) {
  if (!options_.forced.empty()) parser_.add(options_.forced, forced_);
}

OutputDelta ChoiceOutput::add(const Event& event) {
  OutputDelta delta;
  if (finished()) return delta;
  delta.rest = std::exchange(forced_, {});
  for (std::size_t i = 0; i < event.tokens.size() && !finished(); ++i) {
    const bool last = i + 1 == event.tokens.size() && event.finish != FinishReason::kNone;
    const int token = event.tokens[i];
    const auto& ends = options_.end_tokens;
    if (last && event.finish == FinishReason::kStop &&
        std::find(ends.begin(), ends.end(), token) != ends.end()) {
      ++tokens_;  // counts but is not shown
      break;
    }
    add_token(token, i < event.logprobs.size() ? &event.logprobs[i] : nullptr, delta);
    const bool enough = options_.max_calls >= 0 && calls() >= options_.max_calls;
    if (text_.stopped() || enough) {
      cut_short_ = !last;
      close(FinishReason::kStop, delta);
    }
  }
  if (!finished() && event.finish != FinishReason::kNone) close(event.finish, delta);
  return delta;
}

void ChoiceOutput::add_token(int token, const TokenLogprob* logprob, OutputDelta& delta) {
  ++tokens_;
  if (options_.logprobs) held_.push_back(logprob ? *logprob : TokenLogprob{token, 0, {}});
  const bool thought = options_.parse && thinking_.in_reasoning();
  std::string text;
  text_.add(token, text);
  show(text, delta);
  if (thought || (options_.parse && thinking_.in_reasoning())) ++reasoning_tokens_;
  for (; !held_.empty() && released_ < text_.complete_tokens(); ++released_) {
    delta.tokens.push_back(std::move(held_.front()));
    held_.pop_front();
  }
}

void ChoiceOutput::show(std::string_view text, OutputDelta& delta) {
  if (text.empty()) return;
  if (!options_.parse) {
    if (delta.rest.empty()) delta.rest.push_back({});
    delta.rest.back().text += text;
    return;
  }
  if (!options_.forced.empty()) return parser_.add(text, delta.rest);
  std::string content;
  thinking_.add(text, delta.reasoning, content);
  parser_.add(content, delta.rest);
}

void ChoiceOutput::close(FinishReason reason, OutputDelta& delta) {
  std::string rest;
  if (!text_.stopped()) text_.finish(rest);
  if (text_.stopped()) {
    reason = FinishReason::kStop;
    tokens_ = static_cast<int>(text_.complete_tokens());
    reasoning_tokens_ = std::min(reasoning_tokens_, tokens_);
  }
  finish_ = reason;
  show(rest, delta);
  for (; !held_.empty() && released_ < text_.complete_tokens(); ++released_) {
    delta.tokens.push_back(std::move(held_.front()));
    held_.pop_front();
  }
  if (!options_.parse) return;
  const bool truncated = reason != FinishReason::kStop;
  std::string content;
  thinking_.finish(truncated, delta.reasoning, content);
  parser_.add(content, delta.rest);
  parser_.finish(truncated, delta.rest);
}

}  // namespace strata
