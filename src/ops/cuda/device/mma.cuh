// Tensor-core products of one warp (mma.sync) and the widening of f8 to bf16 and f16.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace strata::cuda {

// c [16, 8] += a [16, 16] b [16, 8], bf16 with f32 sums. In the fragments lane = 4 g + t holds
// a: rows g, g + 8, g, g + 8 at k pairs t, t, t + 4, t + 4; b: k pairs t, t + 4 of column g; c: (g, 2t), (g, 2t + 1),
// (g + 8, 2t), (g + 8, 2t + 1). PTX ISA, mma.m16n8k16.
__device__ __forceinline__ void mma_bf16(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                                         std::uint32_t b0, std::uint32_t b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same of f16.
__device__ __forceinline__ void mma_f16(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                        std::uint32_t b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four f8 (e4m3) bytes as two pairs of f16, exactly: an instruction a pair, where widen_f8 takes five.
__device__ __forceinline__ void widen_f8_f16(std::uint32_t bytes, std::uint32_t& lo, std::uint32_t& hi) {
  asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}" : "=r"(lo), "=r"(hi) : "r"(bytes));
}

// Four f8 (e4m3) bytes as two pairs of bf16, exactly: sign and the seven other bits fall into place with an exponent
// 120 too small, which one product mends (subnormals included).
__device__ __forceinline__ void widen_f8(std::uint32_t bytes, std::uint32_t& lo, std::uint32_t& hi) {
  const auto place = [](std::uint32_t t) {
    const std::uint32_t bits = (t & 0x80008000U) | ((t & 0x7f007f00U) >> 4);
    constexpr std::uint32_t kTwoTo120 = 0x7b807b80U;  // (120 + 127) << 7, twice
    const __nv_bfloat162 x =
        __hmul2(reinterpret_cast<const __nv_bfloat162&>(bits), reinterpret_cast<const __nv_bfloat162&>(kTwoTo120));
    return reinterpret_cast<const std::uint32_t&>(x);
  };
  lo = place(__byte_perm(bytes, 0, 0x1404));
  hi = place(__byte_perm(bytes, 0, 0x3424));
}

}  // namespace strata::cuda
