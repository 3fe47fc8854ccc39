// add_rms_norm of a few rows by every block of a kernel that takes them: eight columns a thread.
#pragma once

#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/norm.h"

namespace strata::cuda {

constexpr int kNormWarps = 16;  // of a block, at most

// norm weight of a thread's columns, which may be read before the kernel waits; zeros where `column` is
// beyond the row.
__device__ __forceinline__ Eight norm_weight(const NormArgs& a, int column) {
  Eight w{};
  if (column >= a.columns) return w;
#pragma unroll
  for (int i = 0; i < 8; ++i) w.v[i] = a.weight != nullptr ? a.weight[column + i] : 1.0F;
  return w;
}

// Rows 0 .. R - 1 of f32 x (those beyond `rows`: the last one again): x + delta * scale, of bf16 delta, and
// the factors that normalise them. Adds up as norm_kernel does where that has as many threads.
template <int R>
struct NormRows {
  Eight x[R];
  float factor[R];

  __device__ __forceinline__ void load(const NormArgs& a, int column) {
    __shared__ float squares[R][kNormWarps];
    constexpr int kTogether = R < 4 ? R : 4;  // rows whose loads are under way at once
    const int warp = threadIdx.x / 32, last = static_cast<int>(a.rows) - 1;
    const bool live = column < a.columns;
#pragma unroll
    for (int r0 = 0; r0 < R; r0 += kTogether) {
      float4 low[kTogether] = {}, high[kTogether] = {};
      uint4 delta[kTogether] = {};
      if (live) {
#pragma unroll
        for (int r = 0; r < kTogether; ++r) {
          const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(a.x.data) +
                                                             min(r0 + r, last) * a.x.stride + column);
          low[r] = from[0], high[r] = from[1];
        }
        if (a.delta.data != nullptr) {
#pragma unroll
          for (int r = 0; r < kTogether; ++r)
            delta[r] = *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.delta.data) +
                                                       min(r0 + r, last) * a.delta.stride + column);
        }
      }
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        Eight& to = x[r0 + r];
        to = {{low[r].x, low[r].y, low[r].z, low[r].w, high[r].x, high[r].y, high[r].z, high[r].w}};
        const Eight d = unpack8(delta[r]);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          to.v[i] += d.v[i] * a.scale;
          sum += to.v[i] * to.v[i];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) squares[r0 + r][warp] = sum;
      }
    }
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kNormWarps; ++w) sum += w < warps ? squares[r][w] : 0.0F;
      factor[r] = rsqrtf(sum / static_cast<float>(a.columns) + a.eps);
    }
  }

  // Row r normalised, as bf16.
  __device__ __forceinline__ uint4 normed(int r, const Eight& weight) const {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = x[r].v[i] * factor[r] * weight.v[i];
    return make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
  }
};

// True in all threads of the block that comes here last of all blocks of the kernel; `arrived` is zero before and after.
// What the others wrote before may be read then.
__device__ __forceinline__ bool last_block(unsigned* arrived) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrived) : "memory");
    last = before == gridDim.x - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  return last;
}

}  // namespace strata::cuda
