// Rows of x in shared memory as f16, each 128 inputs times a power of two, and their products with f8
// weights: f8 becomes f16 by an instruction a pair. What a block of 128 loses is at most 2^-39 of its largest
// value.
#pragma once

#include "ops/cuda/device/stream_tile.cuh"

namespace strata::cuda {

constexpr int kHalfBlock = 128;

// Memory of the rows: those of f16, with zeros up to a whole block; and what undoes the powers, of 8 rows for
// each block.
struct HalfRows {
  std::uint8_t* data;
  int rows, blocks;

  __host__ __device__ static constexpr int pitch(int blocks) {
    return blocks * kHalfBlock * 2 + 16;
  }  // + 16: no bank twice
  static constexpr int bytes(int rows, std::int64_t inputs) {
    const int blocks = static_cast<int>((inputs + kHalfBlock - 1) / kHalfBlock);
    return rows * pitch(blocks) + blocks * 32;
  }
  __device__ __forceinline__ HalfRows(std::uint8_t* memory, int count, int inputs)
      : data(memory), rows(count), blocks((inputs + kHalfBlock - 1) / kHalfBlock) {}

  __device__ __forceinline__ float* undo(int block) const {
    return reinterpret_cast<float*>(data + rows * pitch(blocks)) + block * 8;
  }
  // Inputs `at` to `at` + 7 of row r, bf16; by 16 neighbouring lanes a block, all of whom come here.
  __device__ __forceinline__ void put(int r, int at, const uint4& piece) const {
    const Eight e = unpack8(piece);
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(e.v[i]));
    const unsigned lanes = 0xffffU << (threadIdx.x & 16);
#pragma unroll
    for (int o = 8; o > 0; o >>= 1) most = fmaxf(most, __shfl_xor_sync(lanes, most, o));
    // most < 2^(exponent - 126), which becomes 2^15.
    const int exponent = static_cast<int>(__float_as_uint(most) >> 23), up = min(15 + 126 - exponent, 126);
    const float factor = __uint_as_float(static_cast<unsigned>(127 + up) << 23);
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half2 pair = __floats2half2_rn(e.v[2 * i] * factor, e.v[2 * i + 1] * factor);
      pairs[i] = reinterpret_cast<const std::uint32_t&>(pair);
    }
    *reinterpret_cast<uint4*>(data + r * pitch(blocks) + at * 2) =
        make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    if (at % kHalfBlock == 0)
      undo(at / kHalfBlock)[r] = __uint_as_float(static_cast<unsigned>(127 - up) << 23);
  }

  // sum += chunk, inputs from k0, times the rows: as multiply() of stream_tile.cuh for one tile and at most 8
  // rows.
  __device__ __forceinline__ void multiply(float (&sum)[4], const StreamChunk<kElemF8>& chunk, int k0) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // Instead of rows beyond the last, whose sums are of no use, it again.
    const std::uint8_t* row = data + min(g, rows - 1) * pitch(blocks) + k0 * 2 + t * 32;
    float part[4] = {};
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const uint4 x[2] = {*reinterpret_cast<const uint4*>(row + p * 128),
                          *reinterpret_cast<const uint4*>(row + p * 128 + 16)};
      const std::uint32_t low[4] = {x[0].x, x[0].y, x[0].z, x[0].w},
                          high[4] = {x[1].x, x[1].y, x[1].z, x[1].w};
      const uint4 &above = chunk.w[0][p], &below = chunk.w[1][p];
      const std::uint32_t words[2][4] = {{above.x, above.y, above.z, above.w},
                                         {below.x, below.y, below.z, below.w}};
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        std::uint32_t w[2][2];
        widen_f8_f16(words[0][s], w[0][0], w[0][1]);
        widen_f8_f16(words[1][s], w[1][0], w[1][1]);
        mma_f16(part, w[0][0], w[1][0], w[0][1], w[1][1], low[s], high[s]);
      }
    }
    const float2 back =
        *reinterpret_cast<const float2*>(undo(k0 / kHalfBlock) + 2 * t);  // beyond `rows`: of no use
    sum[0] += chunk.scale[0] * back.x * part[0];
    sum[1] += chunk.scale[0] * back.y * part[1];
    sum[2] += chunk.scale[1] * back.x * part[2];
    sum[3] += chunk.scale[1] * back.y * part[3];
  }
};

}  // namespace strata::cuda
