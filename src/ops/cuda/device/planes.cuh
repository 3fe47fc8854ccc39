// Rows of bf16 as planes of f8 (e4m3). With s = 2^n the least power of two that brings the row's largest value to 448 or less,
// hi = f8(x / s) and lo = f8(x / s - hi): x = s (hi + lo) exactly where |x| is at least s / 4, within s / 1024 below (the largest
// value is over 224 s).
#pragma once

#include "ops/cuda/device/rows.cuh"

namespace strata::cuda {

struct PlaneScale {
  float scale, inverse;  // scale is NaN where the largest value is not finite

  // The exponent of s, 8 below that of the largest value, or 7 where that is over 1.75 times a power of two; never so small that
  // 1 / s would not be finite.
  __device__ __forceinline__ explicit PlaneScale(float most) {
    const unsigned bits = __float_as_uint(most);
    const unsigned exponent = max(bits >> 23, 40U) - 8 + ((bits & 0x7fffffU) > 0x600000U ? 1U : 0U);
    inverse = __uint_as_float((254 - exponent) << 23);
    scale = most < INFINITY ? __uint_as_float(exponent << 23) : NAN;
  }
};

__device__ __forceinline__ void take_largest(__nv_bfloat162& largest, std::uint32_t pair) {
  largest = __hmax2(largest, __habs2(reinterpret_cast<const __nv_bfloat162&>(pair)));
}

// A pair of bf16 in each plane.
template <int Planes>
__device__ __forceinline__ void split(std::uint32_t pair, float inverse, std::uint32_t (&q)[Planes]) {
  float2 f = unpack(pair);
  f.x *= inverse;
  f.y *= inverse;
#pragma unroll
  for (int plane = 0; plane < Planes; ++plane) {
    const __nv_fp8x2_storage_t both = __nv_cvt_float2_to_fp8x2(f, __NV_SATFINITE, __NV_E4M3);
    q[plane] = both;
    if (plane + 1 == Planes) continue;
    const float2 taken = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(both, __NV_E4M3)));
    f.x -= taken.x;
    f.y -= taken.y;
  }
}

// Sixteen neighbouring bf16 (the second eight may be zeros) in each plane, in the order of f8_weight_place.
template <int Planes>
__device__ __forceinline__ void split_sixteen(const uint4 (&x)[2], float inverse, uint4 (&plane)[Planes]) {
  const std::uint32_t pair[8] = {x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w};
  std::uint32_t word[Planes][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    std::uint32_t q[Planes];
    split(pair[i], inverse, q);
#pragma unroll
    for (int p = 0; p < Planes; ++p) word[p][i % 4] |= q[p] << i / 4 * 16;
  }
#pragma unroll
  for (int p = 0; p < Planes; ++p) plane[p] = make_uint4(word[p][0], word[p][1], word[p][2], word[p][3]);
}

// Rows in shared memory as two planes, laid out as QuantiseArgs has them: bytes from one to the next, such that the eight
// lanes of an access meet no bank twice.
constexpr int plane_pitch(int inputs) { return (inputs + 127) / 128 * 256 + 64; }

// By all threads of a block: rows of bf16 at `from` (`inputs`, a multiple of 8, of each, `stride` apart, aligned to 16 bytes) as
// planes at `to`, and their scales. most: scratch, zero on entry (and a __syncthreads since). Ends with a __syncthreads.
__device__ __forceinline__ void stage_planes(std::uint8_t* to, float* scales, unsigned* most, const __nv_bfloat16* from,
                                             std::int64_t stride, int rows, int inputs) {
  const int pitch = plane_pitch(inputs), units = (inputs + 127) / 128 * 8, all = rows * units;
  const auto load = [&](int unit, uint4 (&x)[2]) {
    const int row = unit / units, column = unit % units * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c = column + half * 8;
      x[half] = c < inputs ? *reinterpret_cast<const uint4*>(from + row * stride + c) : make_uint4(0, 0, 0, 0);
    }
  };
  for (int first = static_cast<int>(threadIdx.x & ~31U); first < all; first += static_cast<int>(blockDim.x)) {
    const int unit = first + static_cast<int>(threadIdx.x % 32);
    __nv_bfloat162 largest = __float2bfloat162_rn(0);
    if (unit < all) {
      uint4 x[2];
      load(unit, x);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        take_largest(largest, x[half].x), take_largest(largest, x[half].y);
        take_largest(largest, x[half].z), take_largest(largest, x[half].w);
      }
    }
    // As numbers, not negative floats order like their bits; a NaN, which __hmax2 drops, is seen in the products.
    unsigned bits = __float_as_uint(fmaxf(__low2float(largest), __high2float(largest)));
    const int row = min(unit, all - 1) / units;
    if (__all_sync(~0U, row == __shfl_sync(~0U, row, 0))) {
      bits = __reduce_max_sync(~0U, bits);
      if (threadIdx.x % 32 == 0) atomicMax(most + row, bits);
    } else {
      atomicMax(most + row, bits);
    }
  }
  __syncthreads();
  for (int unit = static_cast<int>(threadIdx.x); unit < all; unit += static_cast<int>(blockDim.x)) {
    const int row = unit / units, group = unit % units;
    const PlaneScale scale(__uint_as_float(most[row]));
    uint4 x[2], plane[2];
    load(unit, x);
    split_sixteen(x, scale.inverse, plane);
    auto* at = reinterpret_cast<uint4*>(to + row * pitch + group / 8 * 256 + group % 8 * 16);
    at[0] = plane[0];
    at[8] = plane[1];
    if (group == 0) scales[row] = scale.scale;
  }
  __syncthreads();
}

}  // namespace strata::cuda
