// Rows of bf16 as planes of f8 (device/planes.cuh): a warp per row, which stays in registers up to 4096 columns.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/planes.cuh"
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
    for (int i = 0; i < 8; ++i) take_largest(largest, s.pair[i]);
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
  const PlaneScale scale(warp_max(fmaxf(__low2float(largest), __high2float(largest))));
  if (lane == 0) a.scales[row] = scale.scale;

  std::uint8_t* to = a.planes + row * Planes * a.padded;
  const auto give = [&](int column, const Sixteen& s) {
    if (column >= a.padded) return;
    std::uint32_t word[Planes][4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      std::uint32_t q[Planes];
      split(s.pair[i], scale.inverse, q);
#pragma unroll
      for (int plane = 0; plane < Planes; ++plane) word[plane][i % 4] |= q[plane] << i / 4 * 16;  // in the order of f8_weight_place
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
