#include "text/reasoning_parser.h"

#include <utility>

namespace strata {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool ends_with_tag(std::string_view prompt, std::string_view tag) {
  const auto last = prompt.find_last_not_of(" \n\t\r");
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(tag);
}

}  // namespace

bool ReasoningParser::prompt_is_open(std::string_view prompt) { return ends_with_tag(prompt, kOpen); }
bool ReasoningParser::prompt_is_closed(std::string_view prompt) { return ends_with_tag(prompt, kClose); }

void ReasoningParser::add(std::string_view text, std::string& reasoning, std::string& content) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (state_ == State::kContent) {
      content += text.substr(i);
      return;
    }
    add_byte(text[i], reasoning, content);
  }
}

void ReasoningParser::add_byte(char c, std::string& reasoning, std::string& content) {
  const bool thinking = in_reasoning();
  const std::string_view tag = thinking ? kClose : kOpen;
  if (state_ == State::kAfter) {
    if (is_space(c)) return;
    state_ = State::kContent;
    content += c;
    return;
  }
  if (c == tag[tag_]) {
    held_ += c;
    if (++tag_ < tag.size()) return;
    held_.clear();
    tag_ = 0;
    state_ = thinking ? State::kAfter : State::kThinkStart;
    return;
  }
  if (tag_ > 0) {  // not the tag: both tags repeat '<' nowhere, so only this byte can begin another
    tag_ = 0;
    if (state_ == State::kStart) {
      state_ = State::kContent;
      content += std::exchange(held_, {}) + c;
      return;
    }
    state_ = State::kThink;
    reasoning += std::exchange(held_, {});
    return add_byte(c, reasoning, content);
  }
  if (is_space(c)) {
    if (state_ != State::kThinkStart) held_ += c;
    return;
  }
  if (state_ == State::kStart) state_ = State::kContent;
  if (state_ == State::kThinkStart) state_ = State::kThink;
  (thinking ? reasoning : content) += std::exchange(held_, {}) + c;
}

void ReasoningParser::finish(bool truncated, std::string& reasoning, std::string& content) {
  if (truncated || tag_ == 0) held_.resize(held_.size() - tag_);
  if (state_ == State::kStart) content += held_;
  if (state_ == State::kThink && tag_ > 0 && !truncated) reasoning += held_;
  held_.clear();
  tag_ = 0;
}

}  // namespace strata
