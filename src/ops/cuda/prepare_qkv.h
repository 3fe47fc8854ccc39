// Launch of prepare_qkv.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

// Heads of one of q, k, v. pages.data null: not stored.
struct HeadsView {
  Rows x;                        // [T, heads * dim]
  int heads = 0, dim = 0;
  const float* norm = nullptr;   // [dim] or null
  bool rotate = false;
  Rows pages;                    // [P, page tokens * heads * dim]
  bool wide = false;             // x and pages allow 16-byte accesses to eight channels of each head
};

struct PrepareView {
  HeadsView parts[3];            // q, k, v; heads 0 = absent
  float eps = 0;
  const float* inv_freq = nullptr;  // [pairs]
  int pairs = 0;
  float rope_scale = 1;
  int offset = 0;                // channels before it do not turn
  float query_beta = 0;
  int query_span = 0;            // 0 = queries are not stretched
  bool interleaved = false, mrope_interleaved = false;
  int section[3] = {};
  BatchView batch;
};

void launch_prepare_qkv(const PrepareView& args, Stream stream);

}  // namespace strata::cuda
