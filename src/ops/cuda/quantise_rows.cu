// Rows of bf16 as planes of f8 (e4m3): a warp per row, which stays in registers up to 4096 columns. With s =
// 2^n the least power of two that brings the row's largest value to 448 or less, hi = f8(x / s) and lo = f8(x
// / s - hi): x = s (hi + lo) exactly where |x| is at least s / 4, within s / 1024 below (the largest value is
// over 224 s).
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/linear.h"

namespace strata::cuda {
namespace {

constexpr int kKept = 8;        // groups of 16 columns a lane keeps
constexpr int kTurn = 32 * 16;  // columns of a warp at a time

struct Sixteen {
  std::uint32_t pair[8];
};

__device__ __forceinline__ Sixteen load_sixteen(const __nv_bfloat16* row, int column, int columns) {
  Sixteen s;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int c = column + half * 8;
    const uint4 q = c < columns ? *reinterpret_cast<const uint4*>(row + c) : make_uint4(0, 0, 0, 0);
    s.pair[4 * half] = q.x, s.pair[4 * half + 1] = q.y, s.pair[4 * half + 2] = q.z,
               s.pair[4 * half + 3] = q.w;
  }
  return s;
}

template <int Planes>
__global__ void __launch_bounds__(256) quantise_kernel(QuantiseArgs a) {
  begin_kernel();
  const int lane = threadIdx.x % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  const auto* x = static_cast<const __nv_bfloat16*>(a.x.data) + row * a.x.stride;
  Sixteen kept[kKept];
  __nv_bfloat162 largest = __float2bfloat162_rn(0);
  const auto measure = [&](const Sixteen& s) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      largest = __hmax2(largest, __habs2(reinterpret_cast<const __nv_bfloat162&>(s.pair[i])));
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (j * kTurn < a.columns) kept[j] = load_sixteen(x, j * kTurn + lane * 16, a.columns);
  }
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (j * kTurn < a.columns) measure(kept[j]);
  }
  for (int c = kKept * kTurn; c < a.columns; c += kTurn) measure(load_sixteen(x, c + lane * 16, a.columns));
  const float most = warp_max(fmaxf(__low2float(largest), __high2float(largest)));
  // The exponent of s, 8 below that of the largest value, or 7 where that is over 1.75 times a power of two;
  // never so small that 1 / s would not be finite.
  const unsigned bits = __float_as_uint(most);
  const unsigned exponent = max(bits >> 23, 40U) - 8 + ((bits & 0x7fffffU) > 0x600000U ? 1U : 0U);
  const float inverse = __uint_as_float((254 - exponent) << 23);
  if (lane == 0) a.scales[row] = most < INFINITY ? __uint_as_float(exponent << 23) : NAN;

  std::uint8_t* to = a.planes + row * Planes * a.padded;
  const auto give = [&](int column, const Sixteen& s) {
    if (column >= a.padded) return;
    std::uint32_t word[Planes][4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float2 f = unpack(s.pair[i]);
      f.x *= inverse;
      f.y *= inverse;
#pragma unroll
      for (int plane = 0; plane < Planes; ++plane) {
        const __nv_fp8x2_storage_t q = __nv_cvt_float2_to_fp8x2(f, __NV_SATFINITE, __NV_E4M3);
        word[plane][i % 4] |= static_cast<std::uint32_t>(q) << i / 4 * 16;  // in the order of f8_weight_place
        if (plane + 1 == Planes) continue;
        const float2 taken = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(q, __NV_E4M3)));
        f.x -= taken.x;
        f.y -= taken.y;
      }
    }
#pragma unroll
    for (int plane = 0; plane < Planes; ++plane) {
      *reinterpret_cast<uint4*>(to + (column / 128 * Planes + plane) * 128 + column % 128) =
          make_uint4(word[plane][0], word[plane][1], word[plane][2], word[plane][3]);
    }
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (j * kTurn < a.columns) give(j * kTurn + lane * 16, kept[j]);
  }
  for (int c = kKept * kTurn; c < a.columns; c += kTurn)
    give(c + lane * 16, load_sixteen(x, c + lane * 16, a.columns));
}

}  // namespace

void launch_quantise_rows(const QuantiseArgs& args, Stream stream) {
  const int warps = args.rows < 8 * 132 ? 1 : 8;
  launch(args.count == 1 ? quantise_kernel<1> : quantise_kernel<2>,
         static_cast<unsigned>(ceil_div(args.rows, std::int64_t{warps})), warps * 32, 0, stream, args);
}

}  // namespace strata::cuda
