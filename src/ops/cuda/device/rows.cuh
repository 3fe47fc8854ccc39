// Reading and writing activations whatever their element type: arithmetic is f32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "ops/cuda/views.h"

namespace strata::cuda {

__device__ __forceinline__ float f8_to_float(std::uint8_t bits) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}

// f8 weights lie in groups of 16 inputs as tensor-core fragments take them: pairs 0, 4, 1, 5, 2, 6, 3, 7.
__device__ __forceinline__ std::int64_t f8_weight_place(std::int64_t k) { return (k & ~15) | (k % 8 / 2 * 4 + k % 16 / 8 * 2 + k % 2); }

// Element `at` of an array.
__device__ __forceinline__ float load_elem(const void* data, int elem, std::int64_t at) {
  switch (elem) {
    case kElemF32: return static_cast<const float*>(data)[at];
    case kElemBF16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    case kElemF16: return __half2float(static_cast<const __half*>(data)[at]);
    default: return f8_to_float(static_cast<const std::uint8_t*>(data)[at]);
  }
}

__device__ __forceinline__ void store_elem(void* data, int elem, std::int64_t at, float x) {
  switch (elem) {
    case kElemF32: static_cast<float*>(data)[at] = x; return;
    case kElemBF16: static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(x); return;
    case kElemF16: static_cast<__half*>(data)[at] = __float2half_rn(x); return;
    default: static_cast<std::uint8_t*>(data)[at] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); return;
  }
}

__device__ __forceinline__ float load(const Rows& r, std::int64_t row, std::int64_t column) {
  return load_elem(r.data, r.elem, row * r.stride + column);
}
__device__ __forceinline__ void store(const Rows& r, std::int64_t row, std::int64_t column, float x) {
  store_elem(r.data, r.elem, row * r.stride + column, x);
}

// Eight neighbours of a row.
struct Eight {
  float v[8];
};

__device__ __forceinline__ float2 unpack(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U)};
}
__device__ __forceinline__ std::uint32_t pack(float lo, float hi) {
  const __nv_bfloat162 p = __floats2bfloat162_rn(lo, hi);
  return reinterpret_cast<const std::uint32_t&>(p);
}

__device__ __forceinline__ Eight unpack8(const uint4& q) {
  const float2 a = unpack(q.x), b = unpack(q.y), c = unpack(q.z), d = unpack(q.w);
  return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}

// n (1..8) elements from `column`; `wide`: address and stride allow 16-byte accesses. Beyond n: zeros.
__device__ __forceinline__ Eight load8(const Rows& r, std::int64_t row, std::int64_t column, int n, bool wide) {
  Eight e;
  const std::int64_t at = row * r.stride + column;
  if (wide && n == 8 && r.elem == kElemBF16) {
    e = unpack8(*reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(r.data) + at));
  } else if (wide && n == 8 && r.elem == kElemF32) {
    const float4* p = reinterpret_cast<const float4*>(static_cast<const float*>(r.data) + at);
    const float4 a = p[0], b = p[1];
    e = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) e.v[i] = i < n ? load_elem(r.data, r.elem, at + i) : 0.0F;
  }
  return e;
}

__device__ __forceinline__ void store8(const Rows& r, std::int64_t row, std::int64_t column, int n, bool wide, const Eight& e) {
  const std::int64_t at = row * r.stride + column;
  if (wide && n == 8 && r.elem == kElemBF16) {
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(r.data) + at) =
        make_uint4(pack(e.v[0], e.v[1]), pack(e.v[2], e.v[3]), pack(e.v[4], e.v[5]), pack(e.v[6], e.v[7]));
  } else if (wide && n == 8 && r.elem == kElemF32) {
    float4* p = reinterpret_cast<float4*>(static_cast<float*>(r.data) + at);
    p[0] = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    p[1] = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < n) store_elem(r.data, r.elem, at + i, e.v[i]);
    }
  }
}

}  // namespace strata::cuda
