// Products of few rows by one warp on the tensor cores, with weights that are read once, in 16-byte pieces
// that are fragments as they lie in memory. The order of k within a product is free as long as both sides
// agree: a lane takes eight (bf16) or sixteen (f8) neighbouring k of its row of w, or four times eight of 4
// bits each (four_bit.h), and the same k of its row of x.
#pragma once

#include "ops/cuda/device/four_bit.cuh"
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

// Where the rows of w lie that a lane = 4 g + t reads for a tile of 16: numbers g and g + 8. E: Elem of w.
template <int E>
struct StreamRows {
  static constexpr bool F8 = E == kElemF8;
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

template <int E>
requires(is_four_bit(E)) struct StreamRows<E> {
  const std::uint8_t *w[2], *scale[2];  // of the first block
  const float* factor[2];               // kElemFp4

  StreamRows() = default;
  __device__ __forceinline__ StreamRows(const WeightView& v, int row, int below) {
    const int t = threadIdx.x % 4, rows[2] = {row, below};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = rows[i] % kFourRows;
      const auto* block = static_cast<const std::uint8_t*>(v.data.data) + rows[i] / kFourRows * v.data.stride;
      w[i] = block + (4 * r + t) * 16;
      scale[i] = block + four_scale(E, r, t * 8);
      if constexpr (E == kElemFp4) factor[i] = v.scales + rows[i];
    }
  }
};

// A lane's share of 16 rows of w by kInputs inputs: two pieces of each of its rows.
template <int E>
struct StreamChunk {
  static constexpr bool F8 = E == kElemF8;
  static constexpr int kPiece = F8 ? 16 : 8;  // inputs of a piece
  static constexpr int kInputs = 8 * kPiece;  // four lanes, two pieces
  uint4 w[2][2];                              // [row][piece]
  float scale[2];                             // f8

  // Inputs from k0, a multiple of kInputs; zeros beyond `inputs`.
  __device__ __forceinline__ void load(const StreamRows<E>& rows, int k0, int inputs) {
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

// The same of one block of 4-bit codes: a piece of each row.
template <int E>
requires(is_four_bit(E)) struct StreamChunk<E> {
  static constexpr int kInputs = kFourInputs;
  static constexpr bool kMinimum = E == kElemInt4Min;
  uint4 w[2];  // [row]
  uint2 scale[2], minimum[2];
  float factor[2];

  // Inputs from k0, a multiple of kInputs; zeros beyond `inputs`.
  __device__ __forceinline__ void load(const StreamRows<E>& rows, int k0, int inputs) {
    const bool inside = k0 < inputs;
    const int at = k0 / kFourInputs * four_block_bytes(E);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      w[i] = inside ? stream_load(rows.w[i] + at) : make_uint4(0, 0, 0, 0);
      if constexpr (E == kElemFp4) {
        scale[i].x = inside ? __ldg(reinterpret_cast<const unsigned*>(rows.scale[i] + at)) : 0;
      } else {
        scale[i] = inside ? __ldg(reinterpret_cast<const uint2*>(rows.scale[i] + at)) : make_uint2(0, 0);
      }
      if constexpr (kMinimum)
        minimum[i] = inside ? __ldg(reinterpret_cast<const uint2*>(rows.scale[i] + kFourScales + at))
                            : make_uint2(0, 0);
    }
  }
  // For multiply() with a factor.
  __device__ __forceinline__ void load_factor(const StreamRows<E>& rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (E == kElemFp4) factor[i] = __ldg(rows.factor[i]);
    }
  }
  // Number j of four f16.
  static __device__ __forceinline__ float half_at(const uint2& four, int j) {
    const std::uint32_t two = j < 2 ? four.x : four.y;
    const auto both = reinterpret_cast<const __half2&>(two);
    return j % 2 == 0 ? __low2float(both) : __high2float(both);
  }
};

// multiply() of bf16 and f8.
template <int RT, int MT, int E, bool Weighted>
__device__ __forceinline__ void multiply_plain(float (&sum)[RT][MT][4], const StreamChunk<E> (&chunk)[RT],
                                               const __nv_bfloat16* const (&x)[MT], int k0, int inputs,
                                               float factor) {
  using C = StreamChunk<E>;
  constexpr bool F8 = E == kElemF8;
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

// multiply() of 4-bit codes. Integers: each group's products are summed apart, times its scale in f32; its
// minimum times the sum of x, which is one more product, with ones. kElemFp4: scales are in the pairs,
// exactly, but not the factors of the rows: only where Weighted are those in the sum.
template <int RT, int MT, int E, bool Weighted>
__device__ __forceinline__ void multiply_four_bit(float (&sum)[RT][MT][4], const StreamChunk<E> (&chunk)[RT],
                                                  const __nv_bfloat16* const (&x)[MT], int k0, int inputs,
                                                  float factor) {
  using C = StreamChunk<E>;
  constexpr bool kFp4 = E == kElemFp4;
  float part[RT][MT][4];
  float(&to)[RT][MT][4] = !kFp4 || Weighted ? part : sum;
  const auto clear = [](float(&d)[4]) { d[0] = d[1] = d[2] = d[3] = 0; };
  const auto add = [](float(&d)[4], const float(&p)[4], float above, float below) {
    d[0] += above * p[0], d[1] += above * p[1], d[2] += below * p[2], d[3] += below * p[3];
  };
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint4 q[MT];
    float all[MT][4];  // sums of x
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      q[m] = load_x(x[m], k0 + kFourGroup * j + static_cast<int>(threadIdx.x % 4) * 8, inputs);
      if constexpr (C::kMinimum) {
        constexpr std::uint32_t kOnes = 0x3f803f80U;
        clear(all[m]);
        mma_bf16(all[m], kOnes, kOnes, kOnes, kOnes, q[m].x, q[m].y);
        mma_bf16(all[m], kOnes, kOnes, kOnes, kOnes, q[m].z, q[m].w);
      }
    }
#pragma unroll
    for (int r = 0; r < RT; ++r) {
      std::uint32_t ws[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4& w = chunk[r].w[half];
        const std::uint32_t words[4] = {w.x, w.y, w.z, w.w};
        if constexpr (kFp4) {
          widen_fp4(words[j], fp4_scale(chunk[r].scale[half].x, j), ws[half]);
        } else {
          widen_int4<C::kMinimum ? 0 : 8>(words[j], ws[half]);
        }
      }
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        if (!kFp4 || (Weighted && j == 0)) clear(part[r][m]);
        mma_bf16(to[r][m], ws[0][0], ws[1][0], ws[0][1], ws[1][1], q[m].x, q[m].y);
        mma_bf16(to[r][m], ws[0][2], ws[1][2], ws[0][3], ws[1][3], q[m].z, q[m].w);
        if constexpr (!kFp4) {
          const auto scaled = [&](float s) { return Weighted ? factor * s : s; };
          add(sum[r][m], part[r][m], scaled(C::half_at(chunk[r].scale[0], j)),
              scaled(C::half_at(chunk[r].scale[1], j)));
          if constexpr (C::kMinimum)
            add(sum[r][m], all[m], scaled(C::half_at(chunk[r].minimum[0], j)),
                scaled(C::half_at(chunk[r].minimum[1], j)));
        }
      }
    }
  }
  if constexpr (kFp4 && Weighted) {
#pragma unroll
    for (int r = 0; r < RT; ++r)
#pragma unroll
      for (int m = 0; m < MT; ++m)
        add(sum[r][m], part[r][m], factor * chunk[r].factor[0], factor * chunk[r].factor[1]);
  }
}

// sum[r][m] += factor * the chunks of RT tiles, inputs from k0, times MT groups of eight rows of x, of which
// the lane's pointers are rows g (null: zeros). Lane = 4 g + t: sums are those of mma_bf16, rows g and g + 8
// of w, rows 2t, 2t + 1 of x.
template <int RT, int MT, int E, bool Weighted = false>
__device__ __forceinline__ void multiply(float (&sum)[RT][MT][4], const StreamChunk<E> (&chunk)[RT],
                                         const __nv_bfloat16* const (&x)[MT], int k0, int inputs,
                                         float factor = 1) {
  if constexpr (is_four_bit(E)) {
    multiply_four_bit<RT, MT, E, Weighted>(sum, chunk, x, k0, inputs, factor);
  } else {
    multiply_plain<RT, MT, E, Weighted>(sum, chunk, x, k0, inputs, factor);
  }
}

}  // namespace strata::cuda
