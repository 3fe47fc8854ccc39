// Chunks of the gated delta rule: where they lie in a batch, and what its first kernel leaves for its second.
#pragma once

#include "ops/cuda/recurrence.h"

namespace strata::cuda {

constexpr int kDim = 128, kChunk = 64;
constexpr int kBox = kChunk * 128;  // bytes of 64 rows of 64 bf16

// What the first kernel leaves for each chunk and head. T and P are swizzled as wgmma wants them.
struct Prepared {
  std::uint8_t t[kBox], p[kBox];
  float beta[kChunk], in[kChunk];     // beta; beta e^G r
  float query[kChunk], keep[kChunk];  // e^G p; e^(G_n - G) r
  float total[kChunk], key[kChunk];   // G; r
};

struct ChunkRows {
  int begin, rows;  // rows of the batch
};

__device__ __forceinline__ int first_rows(const BatchView& b, int s) {
  return min(b.first[s + 1] - b.first[s], kChunk - b.start[s] % kChunk);
}
__device__ __forceinline__ int chunks_of(const BatchView& b, int s) {
  const int run = b.first[s + 1] - b.first[s];
  return run <= kStepRows ? 0 : 1 + (run - first_rows(b, s) + kChunk - 1) / kChunk;
}
__device__ __forceinline__ ChunkRows chunk_rows(const BatchView& b, int s, int chunk) {
  const int head = first_rows(b, s), offset = chunk == 0 ? 0 : head + (chunk - 1) * kChunk;
  return {b.first[s] + offset, chunk == 0 ? head : min(kChunk, b.first[s + 1] - b.first[s] - offset)};
}

}  // namespace strata::cuda
