// What a caller asks of the engine and what it hears back: requests, events, usage.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/constraint.h"

namespace strata {

using RequestId = std::uint64_t;
using Clock = std::chrono::steady_clock;

struct SamplingParams {
  float temperature = 1;          // 0 = greedy (the lowest id wins a tie)
  int top_k = 0;                  // 0 or -1 = off
  float top_p = 1;                // 0 = greedy
  float min_p = 0;                // tokens below min_p * the best probability are dropped
  float repetition_penalty = 1;   // over prompt and output (Keskar et al. 2019)
  float presence_penalty = 0;     // over the output, once a token
  float frequency_penalty = 0;    // over the output, once an occurrence
  std::vector<std::pair<int, float>> logit_bias;  // added to the logit
  std::optional<std::uint64_t> seed;  // absent: drawn when the request is submitted
  int min_tokens = 0;             // end tokens are not sampled before
  bool ignore_eos = false;        // end tokens are ordinary tokens
};

struct Request {
  std::vector<int> prompt;        // at least one token
  SamplingParams sampling;
  int max_tokens = -1;            // -1 = until the context is full
  int logprobs = -1;              // -1 = none; n = the chosen token's and the n best ones'
  int prompt_logprobs = -1;       // the same for prompt tokens (turns the prefix cache's reuse off for this request)
  std::vector<int> stop_tokens;   // end tokens beside the model's own
  int priority = 0;               // higher runs first
  std::optional<Clock::time_point> deadline;  // finished with kDeadline when it passes
  std::string adapter;            // LoRA adapter by name; empty = base
  std::string cache_salt;         // prefixes are shared only among equal salts
  std::shared_ptr<Constraint> constraint;     // restricts the tokens (structured output), or null
};

// Natural logarithms of probabilities before temperature and penalties, as the OpenAI API has them.
struct TokenLogprob {
  int token = 0;
  float logprob = 0;
  std::vector<std::pair<int, float>> top;     // best first
};

enum class FinishReason : std::uint8_t {
  kNone,      // still running
  kStop,      // an end token (it is the last of `tokens`), or the constraint allows nothing more
  kLength,    // max_tokens or the context is reached
  kAborted,   // abort() or shutdown
  kDeadline,
  kError,     // see Event::error
};

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;          // of the prompt, taken from the prefix cache
  int output_tokens = 0;          // an end token counts
  int drafted_tokens = 0;
  int accepted_tokens = 0;        // drafted tokens that were accepted
  int verify_steps = 0;           // steps that checked drafts
};

// One step's news of one request. The last event has finish != kNone.
struct Event {
  RequestId id = 0;
  std::vector<int> tokens;
  std::vector<TokenLogprob> logprobs;          // one a token when asked for
  std::vector<TokenLogprob> prompt_logprobs;   // once, with the first tokens; entry i is of prompt token i + 1
  FinishReason finish = FinishReason::kNone;
  Usage usage;
  std::string error;
};

// Called by the engine's thread, in order for one request; must return at once and not throw.
using EventSink = std::function<void(Event&&)>;

}  // namespace strata
