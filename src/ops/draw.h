// Drawing tokens from logits: what a backend is told of a row, and what comes back.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace strata {

// l becomes r(l + add) - subtract, where r(x) = x / repetition for x > 0, else x * repetition. subtract =
// infinity: never drawn.
struct LogitEdit {
  int token = 0;
  float add = 0, repetition = 1, subtract = 0;
};

// One token from one row of logits [V]. In this order: edits, `allowed`, temperature, top-k, top-p, min-p,
// then the first token in order of ids whose running probability exceeds `uniform`. Ties in every ordering go
// to the lower id.
struct DrawRow {
  int row = 0;            // of the logits
  float temperature = 1;  // 0 = the best token
  int top_k = 0;          // 0 or less = off
  float top_p = 1;        // 0 = the best token
  float min_p = 0;
  double uniform = 0;                      // in [0, 1)
  std::span<const LogitEdit> edits;        // a token at most once
  std::span<const std::uint32_t> allowed;  // a bit per token; empty = all
  int score = -1;                          // not -1: draw nothing, this is the token
  int logprobs = -1;  // -1 = none; n = the token's and the n best ones', of the unchanged logits
};

struct Drawn {
  int token = -1;      // -1: none may come
  bool finite = true;  // the model's logit of the token
  float logprob = 0;
  std::span<const std::pair<float, int>> top;  // (log probability, token), best first
};

}  // namespace strata
