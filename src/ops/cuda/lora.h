// Launches of lora and expert_lora, and the table of adapters as it lies in device memory.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

inline constexpr int kMaxLoraParts = 12;  // published matrices that one fused matrix is made of

// One adapter's pair: A [E * lines, K] and each part's B [E * outputs, rank], f32, rows `stride` apart; lines 0 = nothing.
struct LoraEntry {
  const float* a;
  std::int64_t a_stride;
  int lines, parts;
  struct Part {
    const float* b;
    std::int64_t stride;
    int line, rank;
    std::int64_t output, outputs;
  } part[kMaxLoraParts];
};

struct LoraArgs {
  Rows out, x;                   // x is not used with tokens
  const int* tokens = nullptr;   // of an embedding: A x is row token of A
  const LoraEntry* table = nullptr;  // [slots]
  const int* adapters = nullptr;     // [rows of the batch]
  const int* experts = nullptr;      // [entries] or null
  std::int64_t entries = 0;      // rows of out
  int choices = 1;               // entry / choices is the row of the batch ...
  int divisor = 1;               // ... and entry / divisor that of x
  std::int64_t inputs = 0, outputs = 0;
  float* low = nullptr;          // [entries, most_lines] scratch
  int most_lines = 0;
};

// out[i] += B (A x[i / divisor]) for every entry whose row has an adapter.
void launch_lora(const LoraArgs& args, Stream stream);

}  // namespace strata::cuda
