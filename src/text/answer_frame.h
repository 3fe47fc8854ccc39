// What an answer may hold before or instead of the JSON text that is asked for.
#pragma once

#include <compare>

namespace strata {

struct AnswerFrame {
  enum class Thinking : unsigned char {
    kNone,     // the JSON text begins at once
    kAllowed,  // the answer may begin with <think>
    kOpen,     // the prompt ends inside <think>
  };
  Thinking thinking = Thinking::kNone;
  bool tool_calls = false;  // tool calls may stand instead: <tool_call>, then anything

  auto operator<=>(const AnswerFrame&) const = default;
};

}  // namespace strata
