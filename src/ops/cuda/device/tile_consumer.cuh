// A consumer of tiles.cuh: its stages of the ring, and the writing of its sums.
#pragma once

#include <cooperative_groups.h>

#include <algorithm>

#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/device/tile_plan.cuh"
#include "ops/cuda/device/wgmma.cuh"

namespace strata::cuda {

template <typename C>
struct Consumer {
  const LinearArgs& a;
  TileShared<C>& s;
  std::uint8_t *ring_bytes, *staging;
  const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4,
            t = lane % 4;
  Ring<C::kStages> ring;

  __device__ Consumer(const LinearArgs& args, TileShared<C>& shared, std::uint8_t* bytes,
                      std::uint8_t* stage_to)
      : a(args), s(shared), ring_bytes(bytes), staging(stage_to) {}

  // Shared address of the stage that comes next, once it is full.
  __device__ __forceinline__ std::uint32_t take_stage() {
    barrier_wait(s.full + ring.stage, ring.parity);
    if constexpr (C::kExperts) fence_copies();
    return shared_address(ring_bytes + ring.stage * C::kStageBytes);
  }
  __device__ __forceinline__ void release(int stage) {
    if constexpr (C::kPair) {  // either block's copies go to both
      if (lane < 2) barrier_arrive_at(s.empty + stage, lane);
    } else if (lane == 0) {
      barrier_arrive(s.empty + stage);
    }
  }
  // Before the loop of products: else ptxas gives up on keeping them in flight.
  template <int M>
  __device__ __forceinline__ static void clear(float (&sum)[C::kGroups][M]) {
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < M; ++j) sum[i][j] = 0;
    }
  }
  // 4-bit codes: the block of this warp's 16 rows of group i.
  __device__ __forceinline__ const std::uint8_t* block_of(int i) const {
    return ring_bytes + ring.stage * C::kStageBytes + ((group * C::kGroups + i) * 4 + warp) * four_block_bytes(C::kElem);
  }
  // Left operands of this consumer's group i, and rows of x of a box.
  __device__ __forceinline__ std::uint64_t weights_of(std::uint32_t stage, int i) const {
    return rows_descriptor(stage + (group * C::kGroups + i) * 64 * 128);
  }
  __device__ __forceinline__ std::uint64_t rows_of(std::uint32_t stage, int box) const {
    return rows_descriptor(stage + C::kWeightBytes + box * C::kBox);
  }

  // Sums of this block's 16 rows over all blocks of the cluster, added in the order of their ranks.
  template <int N>
  __device__ __forceinline__ void add_up(const float (&sum)[C::kGroups][N / 2], int rank,
                                         float (&own)[C::kGroups][8]) {
    const auto cluster = cooperative_groups::this_cluster();
    float4* dump =
        reinterpret_cast<float4*>(ring_bytes) + threadIdx.x - 128;  // of this thread: every 128 kConsumers-th
    constexpr int kStep = 128 * kConsumers;
    asm volatile("bar.sync 3, %0;" ::"n"(kStep) : "memory");  // nobody multiplies from the ring any more
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < N / 8; ++j)
        dump[(i * N / 8 + j) * kStep] =
            make_float4(sum[i][4 * j], sum[i][4 * j + 1], sum[i][4 * j + 2], sum[i][4 * j + 3]);
    }
    cluster.sync();
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float4 part[C::kSplit], all = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int r = 0; r < C::kSplit; ++r)
          part[r] = *cluster.map_shared_rank(dump + (i * N / 8 + rank * 2 + j) * kStep, r);
#pragma unroll
        for (int r = 0; r < C::kSplit; ++r)
          all.x += part[r].x, all.y += part[r].y, all.z += part[r].z, all.w += part[r].w;
        own[i][4 * j] = all.x, own[i][4 * j + 1] = all.y, own[i][4 * j + 2] = all.z,
                   own[i][4 * j + 3] = all.w;
      }
    }
    cluster.sync();  // nobody leaves while others read
  }

  // N rows of the tile from row0.
  template <int N>
  __device__ __forceinline__ void write(const TileInfo<C>& info, int row0, float (&sum)[C::kGroups][N / 2]) {
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
      const std::int64_t first = info.output + weight_row<C>(a, group, i), in_expert = first + warp * 16,
                         w_row = std::int64_t{info.expert} * a.w.outputs + in_expert;
      float bias[2] = {}, factor[2] = {1, 1};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool inside = in_expert + g + half * 8 < a.w.outputs;
        if (a.bias != nullptr && inside) bias[half] = a.bias[w_row + g + half * 8];
        if constexpr (C::kElem == kElemFp4) factor[half] = inside ? a.w.scales[w_row + g + half * 8] : 0.0F;
      }
#pragma unroll
      for (int j = 0; j < N / 2; j += 4) {
        const float2 scale =
            C::kF8 ? *reinterpret_cast<const float2*>(info.scale + row0 + j * 2 + 2 * t) : make_float2(1, 1);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          if constexpr (!C::kF8) asm volatile("" : "+f"(sum[i][j + q]));  // not before the wait
          sum[i][j + q] = sum[i][j + q] * (C::kElem == kElemFp4 ? factor[q / 2] : q % 2 == 0 ? scale.x : scale.y) + bias[q / 2];
        }
      }
      if constexpr (!C::kGlu) write_group<N>(info, row0, static_cast<int>(first), sum[i]);
    }
    if constexpr (C::kGlu) {
      apply_glu<N>(sum[0], sum[1]);
      write_group<N>(info, row0, info.output + group * 64, sum[0]);
    }
  }

  // Silu in a straight line; anything else one by one, in little code: instructions that do not fit their
  // cache cost more.
  template <int N>
  __device__ __forceinline__ void apply_glu(float (&gate)[N / 2], const float (&up)[N / 2]) {
    if (a.glu.activation == 0) {
#pragma unroll
      for (int j = 0; j < N / 2; ++j) gate[j] = gate[j] * sigmoid(gate[j]) * up[j];
      return;
    }
    float in[2][N / 2];  // in local memory
#pragma unroll
    for (int j = 0; j < N / 2; ++j) in[0][j] = gate[j], in[1][j] = up[j];
#pragma unroll 1
    for (int j = 0; j < N / 2; ++j) in[0][j] = glu_of(a.glu.activation, in[0][j], in[1][j], a.glu.limit);
#pragma unroll
    for (int j = 0; j < N / 2; ++j) gate[j] = in[0][j];
  }

  __device__ __forceinline__ void take_turn() const {
    asm volatile("bar.sync %0, %1;" ::"r"(4 + group), "n"(128 * kConsumers) : "memory");
  }
  __device__ __forceinline__ void give_turn() const {
    asm volatile("bar.arrive %0, %1;" ::"r"(5 - group), "n"(128 * kConsumers) : "memory");
  }
  // Of the four warps of this consumer, about their staging.
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  }

  // 64 outputs from n0 of all rows.
  template <int N>
  __device__ __forceinline__ void write_group(const TileInfo<C>& info, int row0, int n0,
                                              const float (&d)[N / 2]) {
    const bool whole = a.out.elem == kElemBF16 && n0 + 64 <= outputs_of<C>(a) && a.out.stride % 8 == 0 &&
                       reinterpret_cast<std::uintptr_t>(a.out.data) % 16 == 0;
    whole ? write_rows<N>(info.row + row0, n0, d) : write_each<N>(info.row + row0, n0 + warp * 16, d);
  }

  // Any output through the warp's staging, as f32. Parts by recursion: a loop around that of the rows is not
  // unrolled, and sums with an index lie in local memory, where every stage of products then leaves them.
  template <int N, int Part = 0>
  __device__ __forceinline__ void write_each(const int* rows, int n0, const float (&d)[N / 2]) {
    constexpr int kEach = std::min(N - Part, 32);
    float* own = reinterpret_cast<float*>(staging + group * C::kStagingEach + warp * (C::kStagingEach / 4));
    if constexpr (Part == 0) meet();  // the staging is free
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j)
      own[(j / 4 * 8 + 2 * t + j % 2) * 16 + g + j / 2 % 2 * 8] = d[Part / 2 + j];
    __syncwarp();
#pragma unroll 1
    for (int r = lane / 16; r < kEach; r += 2) {
      const int n = n0 + lane % 16, row = rows[Part + r];
      if (row >= 0 && n < outputs_of<C>(a)) store(a.out, row, n, own[r * 16 + lane % 16]);
    }
    if constexpr (Part + kEach < N) {
      write_each<N, Part + kEach>(rows, n0, d);
    } else {
      __syncwarp();
    }
  }

  // bf16 through the consumer's staging: whole lines of 128 bytes to each row.
  template <int N>
  __device__ __forceinline__ void write_rows(const int* rows, int n0, const float (&d)[N / 2]) {
    std::uint8_t* own = staging + group * C::kStagingEach;
#pragma unroll
    for (int part = 0; part < N; part += 64) {
      constexpr int kMost = std::min(N, 64);
      meet();  // the staging is free
#pragma unroll
      for (int j = 0; j < kMost / 8; ++j) {  // 8 rows of x: two 8 x 8 blocks, transposed as they are stored
        if (part + j * 8 >= N) break;
        const int at = (part / 8 + j) * 4, row = j * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(
                         shared_address(own + row * C::kStagingRow + piece * 16)),
                     "r"(pack(d[at], d[at + 1])), "r"(pack(d[at + 2], d[at + 3]))
                     : "memory");
      }
      meet();
      constexpr int kTurns = kMost / 16;  // 16 rows by the four warps
      int row[kTurns];
      uint4 q[kTurns];
#pragma unroll
      for (int j = 0; j < kTurns; ++j) {
        const int r = j * 16 + warp * 4 + lane / 8;
        row[j] = part + j * 16 < N ? rows[part + r] : -1;
        q[j] = *reinterpret_cast<const uint4*>(own + r * C::kStagingRow + lane % 8 * 16);
      }
#pragma unroll
      for (int j = 0; j < kTurns; ++j) {
        if (row[j] >= 0)
          *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.out.data) + row[j] * a.out.stride + n0 +
                                    lane % 8 * 8) = q[j];
      }
    }
  }
};

}  // namespace strata::cuda
