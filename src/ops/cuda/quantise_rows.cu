// Rows of bf16 as planes of f8 (device/planes.cuh): a warp for one or four rows, which stay in registers up to 4096 columns
// together.
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

// RowsT: rows of a warp, so that enough is asked for at a time where rows are short.
template <int Planes, int RowsT>
__global__ void __launch_bounds__(256) quantise_kernel(QuantiseArgs a) {
  begin_kernel();
  constexpr int kEach = kKept / RowsT;
  const int lane = threadIdx.x % 32;
  const std::int64_t first = (std::int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32) * RowsT;
  Sixteen kept[RowsT][kEach];
  const auto row_of = [&](int r) { return static_cast<const __nv_bfloat16*>(a.x.data) + (first + r) * a.x.stride; };
#pragma unroll
  for (int r = 0; r < RowsT; ++r) {
    if (first + r >= a.rows) continue;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (j * kTurn < a.columns) kept[r][j] = load_sixteen(row_of(r), j * kTurn + lane * 16, a.columns);
    }
  }
#pragma unroll
  for (int r = 0; r < RowsT; ++r) {
    const std::int64_t row = first + r;
    if (row >= a.rows) return;
    __nv_bfloat162 largest = __float2bfloat162_rn(0);
    const auto measure = [&](const Sixteen& s) {
#pragma unroll
      for (int i = 0; i < 8; ++i) take_largest(largest, s.pair[i]);
    };
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (j * kTurn < a.columns) measure(kept[r][j]);
    }
    for (int c = kEach * kTurn; c < a.columns; c += kTurn) measure(load_sixteen(row_of(r), c + lane * 16, a.columns));
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
    for (int j = 0; j < kEach; ++j) {
      if (j * kTurn < a.columns) give(j * kTurn + lane * 16, kept[r][j]);
    }
    for (int c = kEach * kTurn; c < a.columns; c += kTurn)
      give(c + lane * 16, load_sixteen(row_of(r), c + lane * 16, a.columns));
  }
}

template <int RowsT>
void quantise(const QuantiseArgs& args, int warps, Stream stream) {
  launch(args.count == 1 ? quantise_kernel<1, RowsT> : quantise_kernel<2, RowsT>,
         static_cast<unsigned>(ceil_div(args.rows, std::int64_t{warps * RowsT})), warps * 32, 0, stream, args);
}

}  // namespace

void launch_quantise_rows(const QuantiseArgs& args, Stream stream) {
  constexpr int kMany = 8 * 132;  // rows that give every processor a block
  if (args.rows < kMany) return quantise<1>(args, 1, stream);
  args.rows >= 4 * kMany && args.columns <= kKept / 4 * kTurn ? quantise<4>(args, 8, stream) : quantise<1>(args, 8, stream);
}

}  // namespace strata::cuda
