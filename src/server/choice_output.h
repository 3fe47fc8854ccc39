// Turns the tokens of one choice into what an API shows: thinking, content, tool calls, log-probabilities.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/request.h"
#include "text/reasoning_parser.h"
#include "text/text_stream.h"
#include "text/tool_parser.h"

namespace strata {

struct OutputOptions {
  std::vector<std::string> stops;
  bool include_stop = false;
  bool skip_special = true;
  std::vector<int> end_tokens;  // not shown
  bool logprobs = false;
  bool parse = false;          // thinking and tool calls are taken apart; false: all is content
  bool thinking_open = false;  // the prompt ends inside an open <think>
  ToolParserOptions tools{false, {}};
  std::string forced;  // text the prompt already ends with that belongs to the answer
  int max_calls = -1;  // the answer ends after so many tool calls; -1 = any number
};

// What one step adds. Joined over the steps the parts are the same for every division into steps.
struct OutputDelta {
  std::string reasoning;             // comes before `rest`
  std::vector<ToolDelta> rest;       // content and calls, in order
  std::vector<TokenLogprob> tokens;  // when log-probabilities are asked for; those whose text is out
  bool empty() const { return reasoning.empty() && rest.empty() && tokens.empty(); }
};

// For the io thread; must not outlive the tokenizer.
class ChoiceOutput {
 public:
  ChoiceOutput(const Tokenizer& tokenizer, OutputOptions options);

  // Takes an event; after finished() it takes nothing more.
  OutputDelta add(const Event& event);
  // Set by the engine's last event, by a stop string, or by the last tool call.
  bool finished() const { return finish_ != FinishReason::kNone; }
  // Whether the engine still works on it although it is finished here.
  bool cut_short() const { return cut_short_; }
  FinishReason finish() const { return finish_; }
  std::string_view stop() const {
    return text_.stop().value_or("");
  }                                       // the stop string that ended it, or empty
  int tokens() const { return tokens_; }  // that count as the answer's
  int reasoning_tokens() const { return reasoning_tokens_; }
  int calls() const { return parser_.calls(); }

 private:
  void add_token(int token, const TokenLogprob* logprob, OutputDelta& delta);
  void show(std::string_view text, OutputDelta& delta);
  void close(FinishReason reason, OutputDelta& delta);

  OutputOptions options_;
  TextStream text_;
  ReasoningParser thinking_;
  ToolParser parser_;
  std::vector<ToolDelta> forced_;  // what the forced beginning says, until the first event
  std::deque<TokenLogprob> held_;  // of tokens whose text is not out yet
  std::size_t released_ = 0;       // tokens given out
  FinishReason finish_ = FinishReason::kNone;
  bool cut_short_ = false;
  int tokens_ = 0, reasoning_tokens_ = 0;
};

}  // namespace strata
