// Products of few rows by one warp on the tensor cores, with weights that are read once, in 16-byte pieces
// that are fragments as they lie in memory. The order of k within a product is free as long as both sides
// agree: a lane takes eight (bf16) or sixteen (f8) neighbouring k of its row of w, and the same k of its row
// of x.
#pragma once

#include "ops/cuda/device/mma.cuh"
#include "ops/cuda/device/rows.cuh"

namespace strata::cuda {

__device__ __forceinline__ uint4 stream_load(const void* p) {
  uint4 q;
  asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(p));
  return q;
}

// Eight bf16 of a row of x from k, in one access; zeros beyond `inputs`, a multiple of 8.
__device__ __forceinline__ uint4 load_x(const __nv_bfloat16* row, int k, int inputs) {
  return row == nullptr || k >= inputs ? make_uint4(0, 0, 0, 0) : *reinterpret_cast<const uint4*>(row + k);
}

// Rows of x in shared memory, which all warps of a block read: bytes from one to the next such that the eight
// lanes of an access meet no bank twice, and how a block copies one.
constexpr int staged_pitch(int inputs, bool f8) { return (inputs * 2 + 127) / 128 * 128 + (f8 ? 16 : 64); }
__device__ __forceinline__ void stage_row(std::uint8_t* to, const __nv_bfloat16* from, int inputs) {
  for (int i = static_cast<int>(threadIdx.x); i < inputs / 8; i += static_cast<int>(blockDim.x))
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
}

// Where the rows of w lie that a lane = 4 g + t reads for a tile of 16: numbers g and g + 8.
template <bool F8>
struct StreamRows {
  const std::uint8_t* w[2];
  const float* scale[2];  // f8: of the first 128 inputs

  StreamRows() = default;
  __device__ __forceinline__ StreamRows(const WeightView& v, int row, int below) {
    const int rows[2] = {row, below};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      w[i] = static_cast<const std::uint8_t*>(v.data.data) + rows[i] * v.data.stride * (F8 ? 1 : 2);
      if constexpr (F8) scale[i] = v.scales + (v.scale_rows == 1 ? rows[i] : rows[i] / 128) * v.scale_columns;
    }
  }
};

// A lane's share of 16 rows of w by kInputs inputs: two pieces of each of its rows.
template <bool F8>
struct StreamChunk {
  static constexpr int kPiece = F8 ? 16 : 8;  // inputs of a piece
  static constexpr int kInputs = 8 * kPiece;  // four lanes, two pieces
  uint4 w[2][2];                              // [row][piece]
  float scale[2];                             // f8

  // Inputs from k0, a multiple of kInputs; zeros beyond `inputs`.
  __device__ __forceinline__ void load(const StreamRows<F8>& rows, int k0, int inputs) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const int k = k0 + p * 4 * kPiece + t * kPiece;
        w[i][p] = k < inputs ? stream_load(rows.w[i] + k * (F8 ? 1 : 2)) : make_uint4(0, 0, 0, 0);
      }
      if constexpr (F8) scale[i] = k0 < inputs ? __ldg(rows.scale[i] + k0 / 128) : 0.0F;
    }
  }
};

// sum[r][m] += factor * the chunks of RT tiles, inputs from k0, times MT groups of eight rows of x, of which
// the lane's pointers are rows g (null: zeros). Lane = 4 g + t: sums are those of mma_bf16, rows g and g + 8
// of w, rows 2t, 2t + 1 of x.
template <int RT, int MT, bool F8, bool Weighted = false>
__device__ __forceinline__ void multiply(float (&sum)[RT][MT][4], const StreamChunk<F8> (&chunk)[RT],
                                         const __nv_bfloat16* const (&x)[MT], int k0, int inputs,
                                         float factor = 1) {
  using C = StreamChunk<F8>;
  constexpr int kSteps = F8 ? 4 : 2;  // products of 16 k in a piece of four lanes
  constexpr bool kScaled = F8 || Weighted;
  float part[RT][MT][4];
  float(&to)[RT][MT][4] = kScaled ? part : sum;
  if constexpr (kScaled) {
#pragma unroll
    for (int r = 0; r < RT; ++r)
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) part[r][m][i] = 0;
  }
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const int k = k0 + p * 4 * C::kPiece + threadIdx.x % 4 * C::kPiece;
    std::uint32_t xs[MT][2 * kSteps];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int i = 0; i < kSteps / 2; ++i) {
        const uint4 q = load_x(x[m], k + 8 * i, inputs);
        xs[m][4 * i] = q.x, xs[m][4 * i + 1] = q.y, xs[m][4 * i + 2] = q.z, xs[m][4 * i + 3] = q.w;
      }
    }
#pragma unroll
    for (int r = 0; r < RT; ++r) {
      std::uint32_t ws[2][2 * kSteps];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 q = chunk[r].w[half][p];
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
  if constexpr (kScaled) {
#pragma unroll
    for (int r = 0; r < RT; ++r) {
      const float above = F8 ? factor * chunk[r].scale[0] : factor,
                  below = F8 ? factor * chunk[r].scale[1] : factor;
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        sum[r][m][0] += above * part[r][m][0];
        sum[r][m][1] += above * part[r][m][1];
        sum[r][m][2] += below * part[r][m][2];
        sum[r][m][3] += below * part[r][m][3];
      }
    }
  }
}

}  // namespace strata::cuda
