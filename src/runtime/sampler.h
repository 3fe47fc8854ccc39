// Sampler: one row of logits and one request's history -> the next token.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

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
};

// Reuses its buffers; one thread. The result depends on the arguments alone: never on the batch.
// Order: logit bias, penalties, min_tokens and constraint masks, temperature, top-k, top-p, min-p, then one draw of
// Philox(seed, position). Ties in every ordering go to the lower id.
class Sampler {
 public:
  // logits [V]: the model's, unchanged. -1 when no token may come.
  int sample(std::span<const float> logits, const SampleContext& context);
  // log softmax of the unchanged logits for `token` and the `top` best ones. Sources: the OpenAI API's definition.
  TokenLogprob logprob(std::span<const float> logits, int token, int top);

 private:
  std::vector<float> work_;
  std::vector<std::pair<float, int>> best_;
};

}  // namespace strata
