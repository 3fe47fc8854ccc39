// Launches of attention.
#pragma once

#include "ops/cuda/views.h"

struct float2;

namespace strata::cuda {

struct AttentionView {
  Rows out, q, gate;             // [T, heads * dim]; gate.data null = none
  Rows k, v;                     // pages [P, page tokens * kv_heads * dim]
  const float* sinks = nullptr;  // [heads] or null
  int heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  int value_stride = 0;          // elements from one kv head's value to the next's (head_dim when values lie in keys)
  float scale = 1, softcap = 0;
  int window = 0, skip = 0;
  const int* blocks = nullptr;   // [T, most_blocks]: a row sees these blocks of `block` tokens and its incomplete one; or null
  int most_blocks = 0, block = 0;
  bool wide = false;             // k allows 16-byte accesses
  std::int64_t pages = 0;
  BatchView batch;

  // Keys of a sequence split over blocks (1 = not): sums [splits, T, heads, value_dim], and [splits, T, heads] of
  // (largest score in units of log2, sum of weights).
  int splits = 1;
  float* partial = nullptr;
  float2* partial_scale = nullptr;
};

// Any element types and sizes (value_dim at most 512).
void launch_attention_plain(const AttentionView& args, Stream stream);
// bf16 q, out, gate and pages; head_dim = value_dim 64, 128 or 256; rows of all aligned to 16 bytes; scale > 0.
void launch_attention_tiles(const AttentionView& args, Stream stream);
// The second kernel where there are splits.
void launch_attention_join(const AttentionView& args, Stream stream);
constexpr int kMostAttentionSplits = 64;
// How many splits suit the shape on so many processors.
int attention_splits(const AttentionView& args, int processors);

}  // namespace strata::cuda
