// linear and expert_linear for few rows: every weight is read once, in 16-byte pieces that are tensor-core fragments as
// they lie in memory. The order of k within a product is free as long as both sides agree: a lane takes eight (bf16)
// or sixteen (f8) neighbouring k of its row of w, and the same k of its row of x. The eight warps of a block take
// chunks of k in turn and add up at the end, in a fixed order.
#include <algorithm>

#include "ops/cuda/device/expert_tiles.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/mma.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/linear.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 8;

__device__ __forceinline__ uint4 stream_load(const void* p) {
  uint4 q;
  asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(p));
  return q;
}

// Eight bf16 of a row of x from k; zeros beyond `inputs`.
__device__ __forceinline__ uint4 load_x(const __nv_bfloat16* row, int k, int inputs, bool wide) {
  if (row == nullptr || k >= inputs) return make_uint4(0, 0, 0, 0);
  if (wide) return *reinterpret_cast<const uint4*>(row + k);
  std::uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float lo = k + 2 * i < inputs ? __bfloat162float(row[k + 2 * i]) : 0.0F;
    const float hi = k + 2 * i + 1 < inputs ? __bfloat162float(row[k + 2 * i + 1]) : 0.0F;
    w[i] = pack(lo, hi);
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

// MT tiles of 8 rows of x, RT tiles of 16 rows of w (Glu: one of gate rows, one of up rows); a chunk of k is two 16-byte pieces
// a lane and row of w. `kTogether` chunks are loaded before the first is used.
template <int MT, int RT, bool F8, bool Glu>
struct Tile {
  static_assert(!Glu || RT == 2);
  static constexpr int kTogether = (F8 ? 2 : 4) / RT;
  static constexpr int kPiece = F8 ? 16 : 8;      // k of a piece
  static constexpr int kChunk = 8 * kPiece;       // four lanes, two pieces
  static constexpr int kRowsOfW = 16 * RT, kOutputs = Glu ? 16 : kRowsOfW, kStride = kRowsOfW + 4;  // + 4: no bank conflicts when fragments are spilled

  uint4 w[kTogether][RT][2][2];  // [chunk][tile][row g or g + 8][piece]
  float sum[RT][MT][4];

  // Chunks at k, k + kWarps * kChunk, ..
  __device__ void load_all(const LinearArgs& a, std::int64_t row0, std::int64_t rows, int k) {
#pragma unroll
    for (int c = 0; c < kTogether; ++c) load_w(a, row0, rows, k + c * kWarps * kChunk, w[c]);
  }
  __device__ void load_w(const LinearArgs& a, std::int64_t row0, std::int64_t rows, int k0, uint4 (&to)[RT][2][2]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < RT; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = row0 + (Glu ? r * a.glu.outputs : 0) + min(static_cast<std::int64_t>((Glu ? 0 : r * 16) + half * 8 + g), rows - 1);
        const auto* base = static_cast<const std::uint8_t*>(a.w.data.data) + row * a.w.data.stride * (F8 ? 1 : 2);
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const int k = k0 + p * 4 * kPiece + t * kPiece;
          to[r][half][p] = k < a.w.inputs ? stream_load(base + k * (F8 ? 1 : 2)) : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }

  __device__ void multiply(const LinearArgs& a, const __nv_bfloat16* const (&x)[MT], std::int64_t row0, int k0,
                           const uint4 (&from)[RT][2][2]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float part[RT][MT][4];
    float (&to)[RT][MT][4] = F8 ? part : sum;
    if constexpr (F8) {
#pragma unroll
      for (int r = 0; r < RT; ++r)
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) part[r][m][i] = 0;
    }
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      constexpr int kSteps = F8 ? 4 : 2;  // products of 16 k in a piece of four lanes
      const int k = k0 + p * 4 * kPiece + t * kPiece;
      std::uint32_t xs[MT][2 * kSteps];
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int i = 0; i < kSteps / 2; ++i) {
          const uint4 q = load_x(x[m], k + 8 * i, static_cast<int>(a.w.inputs), a.wide);
          xs[m][4 * i] = q.x, xs[m][4 * i + 1] = q.y, xs[m][4 * i + 2] = q.z, xs[m][4 * i + 3] = q.w;
        }
      }
#pragma unroll
      for (int r = 0; r < RT; ++r) {
        std::uint32_t ws[2][2 * kSteps];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 q = from[r][half][p];
          const std::uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if constexpr (F8) {
              widen_f8(words[i], ws[half][2 * i], ws[half][2 * i + 1]);
            } else {
              ws[half][i] = words[i];
            }
          }
        }
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            const std::uint32_t lo = xs[m][F8 ? s : 2 * s], hi = xs[m][F8 ? s + 4 : 2 * s + 1];
            mma_bf16(to[r][m], ws[0][2 * s], ws[1][2 * s], ws[0][2 * s + 1], ws[1][2 * s + 1], lo, hi);
          }
        }
      }
    }
    if constexpr (F8) {
#pragma unroll
      for (int r = 0; r < RT; ++r) {
        const std::int64_t last = (a.w.experts == 0 ? 1 : a.w.experts) * a.w.outputs - 1;
        const std::int64_t tile0 = row0 + (Glu ? r * a.glu.outputs : r * 16), row = min(tile0 + g, last), below = min(tile0 + g + 8, last);
        const int column = k0 / 128;
        const float s = a.w.scales[row / a.w.scale_rows * a.w.scale_columns + column];
        const float u = a.w.scales[below / a.w.scale_rows * a.w.scale_columns + column];
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          sum[r][m][0] += s * part[r][m][0];
          sum[r][m][1] += s * part[r][m][1];
          sum[r][m][2] += u * part[r][m][2];
          sum[r][m][3] += u * part[r][m][3];
        }
      }
    }
  }
};

template <int MT, int RT, bool F8, bool Glu>
__global__ void __launch_bounds__(kWarps * 32, MT == 4 ? 1 : MT == 1 && F8 ? 3 : 2) stream_kernel(LinearArgs a) {
  using T = Tile<MT, RT, F8, Glu>;
  __shared__ float parts[kWarps][8 * MT][T::kStride];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const std::int64_t n0 = std::int64_t{blockIdx.x} * T::kOutputs;
  const std::int64_t rows_left = (Glu ? a.glu.outputs : a.w.outputs) - n0;
  T tile;
  if (a.order == nullptr) tile.load_all(a, n0, rows_left, warp * T::kChunk);  // depends on no earlier kernel
  begin_kernel();
  std::int64_t begin = 0, end = a.rows, expert = 0;
  if (a.order != nullptr) {
    expert = nth_active_expert(a.first, a.w.experts, static_cast<int>(blockIdx.y));
    if (expert < 0) return;
    begin = a.first[expert];
    end = a.first[expert + 1];
  }
  const std::int64_t row0 = expert * a.w.outputs + n0;
  const std::int64_t turn = a.order == nullptr ? blockIdx.y : blockIdx.z, turns = a.order == nullptr ? gridDim.y : gridDim.z;
  for (std::int64_t i = begin + turn * 8 * MT; i < end; i += turns * 8 * MT) {
    const __nv_bfloat16* x[MT];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      const std::int64_t entry = i + m * 8 + g;
      x[m] = entry >= end ? nullptr
                          : static_cast<const __nv_bfloat16*>(a.x.data) +
                                (a.order == nullptr ? entry : a.order[entry] / a.divisor) * a.x.stride;
    }
#pragma unroll
    for (int r = 0; r < RT; ++r)
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int j = 0; j < 4; ++j) tile.sum[r][m][j] = 0;
    constexpr int kTurn = kWarps * T::kChunk;  // k between a warp's chunks
    for (int k = warp * T::kChunk; k < a.w.inputs; k += T::kTogether * kTurn) {
      const bool loaded = a.order == nullptr && i == turn * 8 * MT && k == warp * T::kChunk;
      if (!loaded) tile.load_all(a, row0, rows_left, k);
#pragma unroll
      for (int c = 0; c < T::kTogether; ++c) {
        if (k + c * kTurn < a.w.inputs) tile.multiply(a, x, row0, k + c * kTurn, tile.w[c]);
      }
    }
#pragma unroll
    for (int r = 0; r < RT; ++r) {
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          parts[warp][m * 8 + 2 * t + j % 2][r * 16 + g + j / 2 * 8] = tile.sum[r][m][j];
      }
    }
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < 8 * MT * T::kOutputs; j += kWarps * 32) {
      const int n = j % T::kOutputs, m = j / T::kOutputs;
      if (i + m >= end || n >= rows_left) continue;
      const auto add_up = [&](int tile_row, std::int64_t row) {
        float sum = a.bias == nullptr ? 0.0F : a.bias[row];
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += parts[w][m][tile_row];
        return sum;
      };
      float sum = add_up(n, row0 + n);
      if constexpr (Glu) sum = glu_of(a.glu.activation, sum, add_up(16 + n, row0 + a.glu.outputs + n), a.glu.limit);
      store(a.out, a.order == nullptr ? i + m : a.order[i + m], n0 + n, sum);
    }
    __syncthreads();
  }
}

template <int MT, int RT, bool F8, bool Glu>
void start(const LinearArgs& a, Stream stream) {
  const bool experts = a.order != nullptr;
  const std::int64_t tiles = ceil_div(experts ? std::int64_t{a.longest} : a.rows, std::int64_t{8 * MT});
  const auto most = static_cast<unsigned>(std::min<std::int64_t>(tiles, experts ? 4 : 1024));
  const auto groups = static_cast<unsigned>(std::min<std::int64_t>(a.w.experts, a.rows));
  const auto blocks = static_cast<unsigned>(ceil_div(Glu ? a.glu.outputs : a.w.outputs, std::int64_t{Glu ? 16 : 16 * RT}));
  launch(stream_kernel<MT, RT, F8, Glu>, experts ? dim3(blocks, groups, most) : dim3(blocks, most), kWarps * 32, 0, stream, a);
}

template <bool F8, bool Glu>
void pick(const LinearArgs& a, Stream stream) {
  // Rows that one pass over the weights should serve: all, or what an expert gets on average and some more.
  const std::int64_t rows = a.order == nullptr ? a.rows : std::min<std::int64_t>(a.longest, 8 + 2 * a.rows / a.w.experts);
  if (rows <= 8) return start<1, Glu ? 2 : 1, F8, Glu>(a, stream);
  if (rows <= 16) return start<2, 2, F8, Glu>(a, stream);
  start<4, 2, F8, Glu>(a, stream);
}

}  // namespace

void launch_linear_stream(const LinearArgs& args, Stream stream) {
  if (args.glu.outputs > 0) return args.w.data.elem == kElemF8 ? pick<true, true>(args, stream) : pick<false, true>(args, stream);
  args.w.data.elem == kElemF8 ? pick<true, false>(args, stream) : pick<false, false>(args, stream);
}

}  // namespace strata::cuda
