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

}  // namespace strata::cuda
