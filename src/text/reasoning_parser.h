// Splits an answer into its thinking and the rest, while it streams.
#pragma once

#include <string>
#include <string_view>

namespace strata {

// Thinking is what stands between <think> and </think> at the start of an answer; a prompt may already have
// opened it. White space around the tags belongs to neither part. The parts are the same however the text was
// cut. A value for one answer and one thread.
class ReasoningParser {
 public:
  // `open`: the prompt ends inside an open <think>.
  explicit ReasoningParser(bool open) : state_(open ? State::kThinkStart : State::kStart) {}

  // Whether a rendered prompt ends inside an open <think> (and nothing but white space after it).
  static bool prompt_is_open(std::string_view prompt);
  // Whether it ends after a </think>, in the same way.
  static bool prompt_is_closed(std::string_view prompt);

  // Appends what is decided to either part.
  void add(std::string_view text, std::string& reasoning, std::string& content);
  // The end of the answer. Cut off by a length limit, a tag that has only begun is dropped.
  void finish(bool truncated, std::string& reasoning, std::string& content);
  bool in_reasoning() const { return state_ == State::kThinkStart || state_ == State::kThink; }

 private:
  enum class State : unsigned char { kStart, kThinkStart, kThink, kAfter, kContent };
  void add_byte(char c, std::string& reasoning, std::string& content);

  State state_;
  std::string held_;     // white space and the beginning of a tag, not yet decided
  std::size_t tag_ = 0;  // bytes at the end of held_ that match a tag's beginning
};

}  // namespace strata
