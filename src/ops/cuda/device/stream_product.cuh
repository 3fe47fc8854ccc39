// Kernels of linear and expert_linear for few rows: every weight is read once (stream_tile.cuh). The warps of
// a block take chunks of k in turn and add up at the end, in a fixed order. A block goes through tiles of
// outputs and has the next chunks under way while it multiplies; the first are asked for before the kernel
// waits for the one before. Up to eight rows that meet f8 weights are kept in shared memory as f16
// (half_rows.cuh) where they fit.
#pragma once

#include <algorithm>

#include "ops/cuda/device/expert_tiles.cuh"
#include "ops/cuda/device/half_rows.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/stream_tile.cuh"
#include "ops/cuda/linear.h"

namespace strata::cuda {

extern __shared__ __align__(16) std::uint8_t stream_shared[];  // HalfRows, or nothing

// Most that they may take: three blocks of a processor have room for that and their sums.
constexpr int kMostHalfRows = 68 * 1024;

// By all threads of a block: all of `rows` from x.
__device__ __forceinline__ void stage_half_rows(const HalfRows& rows, const Rows& x, int inputs) {
  constexpr int kUnder = 4;  // loads that are under way
  const int each = rows.blocks * (kHalfBlock / 8), all = rows.rows * each;
  for (int first = static_cast<int>(threadIdx.x); first < all;
       first += kUnder * static_cast<int>(blockDim.x)) {
    uint4 piece[kUnder];
#pragma unroll
    for (int j = 0; j < kUnder; ++j) {
      const int unit = first + j * static_cast<int>(blockDim.x), row = unit / each;
      piece[j] = load_x(unit < all ? static_cast<const __nv_bfloat16*>(x.data) + row * x.stride : nullptr,
                        (unit - row * each) * 8, inputs);
    }
#pragma unroll
    for (int j = 0; j < kUnder; ++j) {
      const int unit = first + j * static_cast<int>(blockDim.x), row = unit / each;
      if (unit < all) rows.put(row, (unit - row * each) * 8, piece[j]);
    }
  }
  __syncthreads();
}

// MT groups of 8 rows of x, RT tiles of 16 rows of w (Glu: one of gate rows, one of up rows); a warp has
// `Together` chunks of k under way.
template <int MT, int RT, int E, bool Glu, int Warps,
          int Together = is_four_bit(E) && MT == 1 ? 2 : (E == kElemBF16 ? 4 : 2) / RT>
struct StreamProduct {
  static_assert(!Glu || RT == 2);
  using Chunk = StreamChunk<E>;
  static constexpr int kTurn = Warps * Chunk::kInputs;  // k between a warp's chunks
  static constexpr int kOutputs = Glu ? 16 : 16 * RT,
                       kStride = 16 * RT + 4;  // + 4: no bank conflicts when fragments are spilled
  using Parts = float[Warps][8 * MT][kStride];

  const LinearArgs& a;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int inputs, outputs;
  Chunk chunk[Together][RT];
  StreamRows<E> rows[RT];
  float sum[RT][MT][4];

  __device__ __forceinline__ explicit StreamProduct(const LinearArgs& args)
      : a(args),
        inputs(static_cast<int>(args.w.inputs)),
        outputs(static_cast<int>(Glu ? args.glu.outputs : args.w.outputs)) {}

  __device__ __forceinline__ void aim(int expert, int n0) {
    const int first = expert * static_cast<int>(a.w.outputs);
#pragma unroll
    for (int r = 0; r < RT; ++r) {
      const int n = n0 + (Glu ? 0 : r * 16) + g, base = first + (Glu ? r * outputs : 0);
      rows[r] = StreamRows<E>(a.w, base + min(n, outputs - 1), base + min(n + 8, outputs - 1));
    }
  }
  __device__ __forceinline__ void load(int c, int k0) {
#pragma unroll
    for (int r = 0; r < RT; ++r) chunk[c][r].load(rows[r], k0 + c * kTurn + warp * Chunk::kInputs, inputs);
  }
  __device__ __forceinline__ void begin(int expert, int n0) {
    aim(expert, n0);
#pragma unroll
    for (int c = 0; c < Together; ++c) load(c, 0);
  }

  // Tiles of outputs from n0, `step` apart, for rows [i, end) of x; the first chunks are loaded.
  __device__ __forceinline__ void run(int expert, int n0, int step, std::int64_t i, std::int64_t end,
                                      Parts& parts) {
    const __nv_bfloat16* x[MT];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      const std::int64_t entry = i + m * 8 + g;
      x[m] = entry >= end ? nullptr
                          : static_cast<const __nv_bfloat16*>(a.x.data) +
                                (a.order == nullptr ? entry : a.order[entry] / a.divisor) * a.x.stride;
    }
    go(expert, n0, step, i, end, parts, [&](int c, int k) { multiply(sum, chunk[c], x, k, inputs); });
  }
  // The same for all rows, which `x` has.
  __device__ __forceinline__ void run(int n0, int step, const HalfRows& x, Parts& parts) {
    static_assert(E == kElemF8 && MT == 1);
    go(0, n0, step, 0, x.rows, parts, [&](int c, int k) {
#pragma unroll
      for (int r = 0; r < RT; ++r) x.multiply(sum[r][0], chunk[c][r], k);
    });
  }

  // add(c, k): chunk c, which is of inputs from k, is added to the sums.
  template <typename Add>
  __device__ __forceinline__ void go(int expert, int n0, int step, std::int64_t i, std::int64_t end,
                                     Parts& parts, Add add) {
    for (; n0 < outputs; n0 += step) {
#pragma unroll
      for (int r = 0; r < RT; ++r)
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[r][m][j] = 0;
      for (int k0 = 0; k0 < inputs; k0 += Together * kTurn) {
        const bool last = k0 + Together * kTurn >= inputs, more = !last || n0 + step < outputs;
        if (last && more) aim(expert, n0 + step);
#pragma unroll
        for (int c = 0; c < Together; ++c) {
          const int k = k0 + c * kTurn + warp * Chunk::kInputs;
          if (k < inputs) add(c, k);
          if (more) load(c, last ? 0 : k0 + Together * kTurn);
        }
      }
      give(expert, n0, i, end, parts);
    }
  }

  __device__ __forceinline__ void give(int expert, int n0, std::int64_t i, std::int64_t end, Parts& parts) {
#pragma unroll
    for (int r = 0; r < RT; ++r) {
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int j = 0; j < 4; ++j) parts[warp][m * 8 + 2 * t + j % 2][r * 16 + g + j / 2 * 8] = sum[r][m][j];
      }
    }
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < 8 * MT * kOutputs; j += Warps * 32) {
      const int n = j % kOutputs, m = j / kOutputs;
      if (i + m >= end || n0 + n >= outputs) continue;
      const auto add_up = [&](int tile_row, std::int64_t row) {
        const float bias = a.bias == nullptr ? 0.0F : a.bias[row];
        if constexpr (E == kElemFp4) {
          float all = 0;
#pragma unroll
          for (int w = 0; w < Warps; ++w) all += parts[w][m][tile_row];
          return a.w.scales[row] * all + bias;
        } else {
          float all = bias;
#pragma unroll
          for (int w = 0; w < Warps; ++w) all += parts[w][m][tile_row];
          return all;
        }
      };
      const std::int64_t row = expert * a.w.outputs + n0 + n;
      float all = add_up(n, row);
      if constexpr (Glu) all = glu_of(a.glu.activation, all, add_up(16 + n, row + outputs), a.glu.limit);
      store(a.out, a.order == nullptr ? i + m : a.order[i + m], n0 + n, all);
    }
    __syncthreads();
  }
};

// Blocks of a processor.
constexpr int blocks_each(int mt, int rt, int elem, int warps) {
  return warps > 8 ? 1 : mt == 1 && elem != kElemBF16 && !(rt == 2 && is_four_bit(elem)) ? 3 : 2;
}

// Half: rows in shared memory, not of experts.
template <int MT, int RT, int E, bool Glu, int Warps, bool Half>
__global__ void __launch_bounds__(Warps * 32, blocks_each(MT, RT, E, Warps)) stream_kernel(LinearArgs a) {
  using S = StreamProduct<MT, RT, E, Glu, Warps>;
  __shared__ typename S::Parts parts;
  S stream(a);
  const int n0 = static_cast<int>(blockIdx.x) * S::kOutputs;
  const int step = static_cast<int>(gridDim.x) * S::kOutputs;
  if constexpr (Half) {
    stream.begin(0, n0);
    const HalfRows x(stream_shared, static_cast<int>(a.rows), stream.inputs);
    begin_kernel();
    stage_half_rows(x, a.x, stream.inputs);
    return stream.run(n0, step, x, parts);
  }
  if (a.order == nullptr) {
    stream.begin(0, n0);
    begin_kernel();
    return stream.run(0, n0, step, 0, a.rows, parts);
  }
  begin_kernel();
  const int expert = nth_active_expert(a.first, a.w.experts, static_cast<int>(blockIdx.y));
  if (expert < 0) return;
  const int end = a.first[expert + 1];
  for (std::int64_t i = a.first[expert] + blockIdx.z * 8 * MT; i < end; i += gridDim.z * 8 * MT) {
    stream.begin(expert, n0);
    stream.run(expert, n0, stream.outputs, i, end, parts);
  }
}

// Two matrices of the same rows of x, one of E and one bf16: blocks from `blocks` on are the second's, a tile
// each.
template <int MT, int E, bool Half>
__global__ void __launch_bounds__(256, MT == 1 ? 3 : 2)
    pair_kernel(LinearArgs narrow, LinearArgs bf16, int blocks) {
  using First = StreamProduct<MT, 1, E, false, 8>;
  using Second = StreamProduct<MT, 1, kElemBF16, false, 8, 2>;
  __shared__ typename First::Parts parts;
  static_assert(sizeof(parts) == sizeof(typename Second::Parts));
  const int block = static_cast<int>(blockIdx.x);
  if (block < blocks) {
    First stream(narrow);
    const int n0 = block * First::kOutputs, step = blocks * First::kOutputs;
    stream.begin(0, n0);
    if constexpr (Half) {
      const HalfRows x(stream_shared, static_cast<int>(narrow.rows), stream.inputs);
      begin_kernel();
      stage_half_rows(x, narrow.x, stream.inputs);
      stream.run(n0, step, x, parts);
    } else {
      begin_kernel();
      stream.run(0, n0, step, 0, narrow.rows, parts);
    }
  } else {
    Second stream(bf16);
    const int n0 = (block - blocks) * Second::kOutputs;
    stream.begin(0, n0);
    begin_kernel();
    stream.run(0, n0, stream.outputs, 0, bf16.rows, parts);
  }
}

inline int tiles_of(const LinearArgs& a, int outputs) {
  return static_cast<int>(ceil_div(a.glu.outputs > 0 ? a.glu.outputs : a.w.outputs, std::int64_t{outputs}));
}

// Bytes of at most 8 rows as HalfRows; 0 where there are none, or they are too long.
inline std::size_t half_rows_bytes(const LinearArgs& a) {
  const int bytes = HalfRows::bytes(static_cast<int>(a.rows), a.w.inputs);
  return a.rows > 0 && bytes <= kMostHalfRows ? static_cast<std::size_t>(bytes) : 0;
}
template <auto Kernel, typename... Args>
void launch_half(unsigned blocks, unsigned threads, std::size_t bytes, Stream stream, const Args&... args) {
  allow_shared<Kernel, kMostHalfRows>();
  launch(Kernel, blocks, threads, bytes, stream, args...);
}

template <int MT, int RT, int E, bool Glu, int Warps = 8>
void start_stream(const LinearArgs& a, Stream stream) {
  constexpr auto kernel = stream_kernel<MT, RT, E, Glu, Warps, false>;
  const int tiles = tiles_of(a, Glu ? 16 : 16 * RT);
  if (a.order == nullptr) {
    const auto blocks = static_cast<unsigned>(std::min(tiles, a.processors * blocks_each(MT, RT, E, Warps)));
    if constexpr (E == kElemF8 && MT == 1) {
      if (const std::size_t bytes = half_rows_bytes(a); bytes > 0)
        return launch_half<stream_kernel<MT, RT, E, Glu, Warps, true>>(blocks, Warps * 32, bytes, stream, a);
    }
    return launch(kernel, blocks, Warps * 32, 0, stream, a);
  }
  launch(
      kernel,
      dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(std::min<std::int64_t>(a.w.experts, a.rows)),
           static_cast<unsigned>(ceil_div(a.longest, 8 * MT))),
      Warps * 32, 0, stream, a);
}

template <int E, bool Glu>
void pick_stream(const LinearArgs& a, Stream stream) {
  // Rows that one pass over the weights should serve: all, or what an expert gets on average and some more.
  const std::int64_t rows =
      a.order == nullptr ? a.rows : std::min<std::int64_t>(a.longest, 8 + 2 * a.rows / a.w.experts);
  if constexpr (!Glu) {  // larger blocks where there are few tiles
    if (a.order == nullptr && tiles_of(a, 16) <= a.processors)
      return rows <= 8 ? start_stream<1, 1, E, false, 16>(a, stream)
                       : start_stream<2, 1, E, false, 16>(a, stream);
  }
  if constexpr (is_four_bit(E) && !Glu) {  // many tiles: larger ones, as each ends with all warps waiting
    if (a.order == nullptr && rows <= 8 && tiles_of(a, 32) >= 4 * a.processors)
      return start_stream<1, 2, E, Glu>(a, stream);
  }
  rows <= 8 ? start_stream<1, Glu ? 2 : 1, E, Glu>(a, stream) : start_stream<2, 2, E, Glu>(a, stream);
}

template <int E>
void launch_stream(const LinearArgs& a, Stream stream) {
  a.glu.outputs > 0 ? pick_stream<E, true>(a, stream) : pick_stream<E, false>(a, stream);
}

template <int MT, int E>
void start_pair(const LinearArgs& narrow, const LinearArgs& bf16, Stream stream) {
  const int second = tiles_of(bf16, 16);
  const int blocks =
      std::min(tiles_of(narrow, 16), std::max(1, narrow.processors * (MT == 1 ? 3 : 2) - second));
  const auto both = static_cast<unsigned>(blocks + second);
  if constexpr (E == kElemF8 && MT == 1) {
    if (const std::size_t bytes = half_rows_bytes(narrow); bytes > 0)
      return launch_half<pair_kernel<MT, E, true>>(both, 256, bytes, stream, narrow, bf16, blocks);
  }
  launch(pair_kernel<MT, E, false>, both, 256, 0, stream, narrow, bf16, blocks);
}
template <int E>
void launch_pair(const LinearArgs& narrow, const LinearArgs& bf16, Stream stream) {
  narrow.rows <= 8 ? start_pair<1, E>(narrow, bf16, stream) : start_pair<2, E>(narrow, bf16, stream);
}

}  // namespace strata::cuda
