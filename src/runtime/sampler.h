// Sampler: one row of logits and one request's history -> the next token.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/draw.h"
#include "runtime/request.h"

namespace strata {

// What penalties depend on: kept per sequence, advanced with every token.
struct TokenHistory {
  std::unordered_map<int, int> output;   // occurrences in the output
  std::unordered_map<int, int> seen;     // occurrences in prompt and output; filled only when a repetition penalty needs it
};

struct SampleContext {
  const SamplingParams& params;
  const TokenHistory& history;
  std::uint64_t seed;
  std::uint64_t position;            // index of the token to draw in its sequence
  int output_tokens;                 // drawn before, for min_tokens
  std::span<const int> end_tokens;   // all of the request's, empty under ignore_eos
  std::span<const std::uint32_t> allowed;  // bit per token, empty = all
  std::span<const int> drawn = {};   // tokens after those of the history: drafts taken to be right
};

// What the request's parameters and history do to logits, a token at most once; appended to `to`.
void append_edits(const SampleContext& context, std::vector<LogitEdit>& to);
// All but the logits' row and the edits. The uniform number is Philox(seed, position)'s.
DrawRow draw_row(const SampleContext& context);

// Reuses its buffers; one thread. The result depends on the arguments alone: never on the batch. The order of things is DrawRow's;
// edits are logit bias, penalties and min_tokens. The specification of devices that draw.
class Sampler {
 public:
  // logits [V]: the model's, unchanged. -1 when no token may come.
  int sample(std::span<const float> logits, const SampleContext& context);
  int sample(std::span<const float> logits, const DrawRow& row);
  // A row as devices do it; `top` keeps what the result views.
  Drawn draw(std::span<const float> logits, const DrawRow& row, std::vector<std::pair<float, int>>& top);
  // log softmax of the unchanged logits for `token` and the `top` best ones. Sources: the OpenAI API's definition.
  TokenLogprob logprob(std::span<const float> logits, int token, int top);

 private:
  std::vector<LogitEdit> edits_;
  std::vector<float> work_;
  std::vector<std::pair<float, int>> best_;
};

}  // namespace strata
