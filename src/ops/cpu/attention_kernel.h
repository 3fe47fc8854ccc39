// The inner kernel of attention: queries of one kv head that share pages, over one span of key positions.
#pragma once

#include <cstdint>

#include "ops/batch.h"
#include "ops/memory.h"

namespace strata {

constexpr int kTileQueries = 32;  // queries that share the staging of a page
constexpr int kSpanTokens =
    16 * kPageTokens;  // key positions whose softmax is one running sum; spans are merged in order

// Query i sees keys [low[i], high[i]) of the sequence. All pointers outlive the call.
struct AttentionTile {
  int queries = 0;
  const float* q[kTileQueries];  // [Dh] each
  int low[kTileQueries], high[kTileQueries];
  const KvView* kv = nullptr;
  const std::int32_t* pages = nullptr;  // of the sequence
  std::int64_t kv_head = 0, head_dim = 0, value_dim = 0;
  float scale = 1, softcap = 0;
};

// A softmax in progress: sum of exp(score - most) and of the values so weighted. sum is 0 while no key was
// seen.
struct AttentionSums {
  float*
      values;   // [queries, stride], stride = value_stride(value_dim); columns beyond value_dim are undefined
  float* most;  // [queries]
  float* sum;   // [queries]
};

// Floats from one query's values to the next: whole cache lines.
inline std::int64_t value_stride(std::int64_t value_dim) { return (value_dim + 15) / 16 * 16; }

// Floats of scratch that attend_span needs.
std::size_t attend_scratch(const AttentionTile& tile);

// Attends over the keys of span number `span`, from nothing. A query's result depends on its own q, low, high
// and the keys only: scores sum over the channels in order, the softmax goes page by page, values are added
// key by key.
void attend_span(const AttentionTile& tile, int span, const AttentionSums& sums, float* scratch);

}  // namespace strata
