// Chunks of the gated delta rule: where they lie in a batch, and what its first kernel leaves for its second.
#pragma once

#include "ops/cuda/recurrence.h"

namespace strata::cuda {

constexpr int kDim = 128, kChunk = 64;
constexpr int kBox = kChunk * 128;  // bytes of 64 rows of 64 bf16

// What the first kernel leaves for each chunk and head. T and P are swizzled as wgmma wants them.
struct alignas(16) Prepared {
  std::uint8_t t[kBox], p[kBox];
  float beta[kChunk], in[kChunk];     // beta; beta e^G r
  float query[kChunk], keep[kChunk];  // e^G p; e^(G_n - G) r
  float total[kChunk], key[kChunk];   // G / log 2; r
  float decay;                        // e^(G_n)
};

// The chunks of a sequence, one after the other: they end where positions are multiples of kChunk.
struct ChunkRows {
  int begin, rows, end;  // rows of the batch; end: of the sequence
  __device__ __forceinline__ bool next() {
    begin += rows;
    rows = min(kChunk, end - begin);
    return rows > 0;
  }
};

__device__ __forceinline__ ChunkRows first_chunk(const BatchView& b, int s) {
  const int begin = b.first[s], end = b.first[s + 1];
  return {begin, min(end - begin, kChunk - b.start[s] % kChunk), end};
}
__device__ __forceinline__ int chunks_of(const BatchView& b, int s) {
  const ChunkRows first = first_chunk(b, s);
  const int run = first.end - first.begin;
  return run <= kStepRows ? 0 : 1 + (run - first.rows + kChunk - 1) / kChunk;
}
__device__ __forceinline__ ChunkRows chunk_rows(const BatchView& b, int s, int chunk) {
  ChunkRows rows = first_chunk(b, s);
  if (chunk > 0) {
    rows.begin += rows.rows + (chunk - 1) * kChunk;
    rows.rows = min(kChunk, rows.end - rows.begin);
  }
  return rows;
}

}  // namespace strata::cuda
