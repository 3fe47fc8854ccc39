// Drawing tokens: what the kernel sees of a row (ops/draw.h) and what it writes.
#pragma once

#include <cstdint>

#include "ops/cuda/stream.h"

namespace strata::cuda {

constexpr int kMostDrawVocab = 8 * 48 * 1024;  // eight blocks' shared memory
constexpr int kMostTop = 128;                  // kMostTopLogprobs of ops/step_device.h

struct EditView {  // LogitEdit of ops/draw.h
  int token;
  float add, repetition, subtract;
};

struct DrawJob {
  double uniform;
  int row;    // of the logits
  int place;  // of the result
  int top_k;
  float temperature, top_p, min_p;
  int first_edit, edits;
  int first_mask_word;  // -1 = all tokens are allowed
  int score, logprobs;
};

struct DrawResult {
  int token, finite;
  float logprob;
  int top;  // entries written
};

struct TopEntry {
  float logprob;
  int token;
};

struct KeptTokens {
  int* tokens = nullptr;
  unsigned mask = 0;  // a power of two less one
};

struct DrawView {
  const float* logits = nullptr;
  std::int64_t stride = 0;
  int vocab = 0, count = 0;
  const DrawJob* jobs = nullptr;
  const EditView* edits = nullptr;
  const std::uint32_t* masks = nullptr;
  DrawResult* results = nullptr;
  TopEntry* top = nullptr;  // kMostTop for each place, in no order
  KeptTokens kept;          // the token goes to (first + place) & mask too
  unsigned first = 0;
};

void launch_draw(const DrawView& args, Stream stream);
// The same for jobs that want the best token and nothing else: no edits, masks, scores or log probabilities.
void launch_best(const DrawView& args, Stream stream);

struct TakeView {
  int* tokens = nullptr;
  const int* pairs = nullptr;  // (row, place in kept) of `count` tokens
  int count = 0;
  const int* kept = nullptr;
};

// tokens[row] = max(kept[place], 0): a row from which none may come gave -1.
void launch_take(const TakeView& args, Stream stream);

}  // namespace strata::cuda
