// What every API lets a caller choose about a generation, read from the request's JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "server/json_edge.h"

namespace strata {

inline constexpr int kMaxChoices = 64;
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr std::size_t kMaxStops = 16;

struct GenerationOptions {
  SamplingParams sampling;
  int max_tokens = -1;  // -1 = until the context is full
  int choices = 1;      // n
  std::vector<std::string> stops;
  std::vector<int> stop_tokens;
  bool include_stop = false;  // the stop string stays in the text
  bool skip_special = true;   // special tokens are left out of the text
  int logprobs = -1;          // -1 = none
  int prompt_logprobs = -1;
  bool stream = false;
  bool stream_usage = false;  // a last chunk with the usage
  int priority = 0;
  std::optional<double> timeout_seconds;
  std::string cache_salt;
};

// Reads the fields that all APIs share. `stop` is the name of the field with the stop strings. Errors stay in
// `fields`.
GenerationOptions read_options(Fields& fields, const ModelInfo& model, const char* stop);

// Top logprobs beyond the vocabulary or kMaxTopLogprobs are errors.
std::optional<int> read_top_logprobs(Fields& fields, const char* name, const ModelInfo& model);

// The engine's request of one choice. A seed moves on by one a choice, so that n texts differ and come again.
Request make_request(const GenerationOptions& options, std::vector<int> prompt, const std::string& adapter,
                     int choice);

}  // namespace strata
