// Launches of attention.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

struct AttentionView {
  Rows out, q, gate;             // [T, heads * dim]; gate.data null = none
  Rows k, v;                     // pages [P, page tokens * kv_heads * dim]
  const float* sinks = nullptr;  // [heads] or null
  int heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  int value_stride = 0;          // elements from one kv head's value to the next's (head_dim when values lie in keys)
  float scale = 1, softcap = 0;
  int window = 0, skip = 0;
  bool wide = false;             // q and k allow 16-byte accesses
  BatchView batch;
};

// Any element types and sizes (value_dim at most 512).
void launch_attention_plain(const AttentionView& args, Stream stream);

}  // namespace strata::cuda
