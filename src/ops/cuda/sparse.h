// Launches of store_index, select_blocks and ngram_rows.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

struct IndexView {
  Rows k;                          // [T, dim]
  const float* norm = nullptr;     // [dim]
  const float* inv_freq = nullptr; // [pairs]
  int pairs = 0, dim = 0, block = 0;
  float eps = 0, rope_scale = 1;
  Rows pages;                      // [P, page tokens * dim]
  BatchView batch;
};
void launch_store_index(const IndexView& args, Stream stream);  // dim at most 256

struct SelectView {
  int* blocks = nullptr;           // [T, most]
  Rows q;                          // [T, heads * dim]
  float* scores = nullptr;         // [T, longest_context / block + 1]
  std::int64_t score_stride = 0;
  int most = 0, heads = 0, dim = 0, block = 0;
  Rows pages;
  BatchView batch;
};
void launch_select_blocks(const SelectView& args, Stream stream);

struct NgramView {
  int* out = nullptr;              // [T, (n - 1) * heads]
  int n = 0, heads = 0, end_token = 0;
  std::int64_t multipliers[4] = {}, sizes[32] = {}, offsets[32] = {};
  Rows state;                      // [slots, n - 1]
  Rows tape;                       // [tapes, kRowsPerTape] or null
  BatchView batch;
};
void launch_ngram_rows(const NgramView& args, Stream stream);

}  // namespace strata::cuda
