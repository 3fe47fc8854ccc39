// Parts that the APIs' answers have in common: collected choices, log-probabilities, usage.
#pragma once

#include <string>
#include <vector>

#include "server/chat_prompt.h"
#include "server/generation.h"
#include "server/generation_options.h"
#include "server/json_edge.h"
#include "text/tokenizer.h"

namespace strata {

struct CollectedCall {
  std::string id, name, arguments;
};

// Everything one choice has said.
struct CollectedChoice {
  std::string reasoning, content;
  std::vector<CollectedCall> calls;
  std::vector<TokenLogprob> tokens;
  FinishReason finish = FinishReason::kNone;
  std::string stop;

  void add(const OutputDelta& delta, const ChoiceOutput& state);
};

// Carries the options that shape the text over to how it is read.
void apply(const GenerationOptions& options, OutputOptions& to);

// "stop", "length" or "tool_calls" (which a call to a function the caller named is not).
std::string_view finish_word(const ChoiceOutput& state, ToolChoice::Kind tool_choice);

// A token as text and bytes.
Json token_json(const Tokenizer& tokenizer, int token);
// A token as the legacy completions API writes it: its text, or "bytes:\\xE2\\x82" when it is part of a
// character.
std::string completion_token(const Tokenizer& tokenizer, int token);
// One entry a prompt token, null for the first: {"ID": {"logprob", "decoded_token"}, ...} of the token and
// the best ones.
Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<int>& prompt,
                          const std::vector<TokenLogprob>& logprobs);
// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}
Json chat_logprobs(const Tokenizer& tokenizer, const std::vector<TokenLogprob>& tokens);
// A number JSON can hold: -inf is the lowest there is.
double finite(float logprob);

// OpenAI's usage object, with the tokens cached, thought and drafted.
Json openai_usage(const UsageTotals& usage);

}  // namespace strata
