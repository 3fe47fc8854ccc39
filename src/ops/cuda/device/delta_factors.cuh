// First kernel of the chunked delta rule (gated_delta_chunk.cu): T, P and the diagonals of all chunks, a block of four warps
// per chunk and key head. Warp w makes rows 16 w .. of k k^T and q k^T (another w in every block, since lower ones have less to do).
// T = (I + A)^-1 by blocks of 16: those on the diagonal by substitution, a thread a column; those below by
//   T_ij = -T_ii (A_ij T_jj + .. + A_i,i-1 T_i-1,j),
// transposed, so that each product's result is the left operand of the next in the registers of the same warp. The tensor cores take
// f32 as the sum of two bf16 and leave out the product of the two small ones: 2^-16 of a factor, T is rounded to 2^-9.
#pragma once

#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/delta_chunk.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/mma.cuh"
#include "ops/cuda/device/ragged.cuh"
#include "ops/cuda/device/rows.cuh"

namespace strata::cuda {

constexpr int kStride = kDim + 8;     // of q and k in shared memory: no bank conflicts for ldmatrix
constexpr int kStrideA = kChunk + 8;  // nor for pairs of f32, eight rows by four pairs

struct FactorShared {
  union {
    struct {
      __nv_bfloat16 q[kChunk][kStride], k[kChunk][kStride];
    };
    Prepared image[2];  // of two value heads, once q and k are done with
  };
  float a[2][kChunk][kStrideA];  // A, its blocks on the diagonal then those of T
  float key[kChunk], query[kChunk];
  float beta[2][kChunk], total[2][kChunk], half[2];
};

// `bytes` (a multiple of 16) from shared memory, made visible by fence_copies(); both ends aligned to 16.
__device__ __forceinline__ void store_bytes(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}
// This thread's stores so far have read shared memory.
__device__ __forceinline__ void stores_read() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ __forceinline__ void load_fragments(std::uint32_t (&f)[4], const __nv_bfloat16* row, int column) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(shared_address(row + column)));
}

// Rows 16 `block` .. of k k^T and q k^T up to the diagonal.
__device__ __forceinline__ void products(float (&kk)[8][4], float (&qk)[8][4], const FactorShared& s, int block) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int tile = 0; tile < 8; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) kk[tile][i] = qk[tile][i] = 0;
  }
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t k[4], q[4];
    load_fragments(k, s.k[block * 16 + lane % 16], step * 16 + lane / 16 * 8);
    load_fragments(q, s.q[block * 16 + lane % 16], step * 16 + lane / 16 * 8);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      if (pair > block) break;
      std::uint32_t b[4];  // rows 16 pair .. + 7 and .. + 15: k low and high of each
      load_fragments(b, s.k[pair * 16 + lane / 16 * 8 + lane % 8], step * 16 + lane / 8 % 2 * 8);
      mma_bf16(kk[2 * pair], k[0], k[1], k[2], k[3], b[0], b[1]);
      mma_bf16(kk[2 * pair + 1], k[0], k[1], k[2], k[3], b[2], b[3]);
      mma_bf16(qk[2 * pair], q[0], q[1], q[2], q[3], b[0], b[1]);
      mma_bf16(qk[2 * pair + 1], q[0], q[1], q[2], q[3], b[2], b[3]);
    }
  }
}

// A 16 x 16 left operand of bf16 pairs: x = hi + lo.
struct Split {
  std::uint32_t hi[4], lo[4];
};
__device__ __forceinline__ void split(float x, float y, std::uint32_t& hi, std::uint32_t& lo) {
  hi = pack(x, y);
  const float2 rounded = unpack(hi);
  lo = pack(x - rounded.x, y - rounded.y);
}
// c += x y^T, y 16 x 16 at `y`.
__device__ __forceinline__ void add_product(float (&c)[2][4], const Split& x, const float* y) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    std::uint32_t hi[2], lo[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 pair = *reinterpret_cast<const float2*>(y + (8 * tile + g) * kStrideA + 8 * i + 2 * t);
      split(pair.x, pair.y, hi[i], lo[i]);
    }
    mma_bf16(c[tile], x.lo[0], x.lo[1], x.lo[2], x.lo[3], hi[0], hi[1]);
    mma_bf16(c[tile], x.hi[0], x.hi[1], x.hi[2], x.hi[3], lo[0], lo[1]);
    mma_bf16(c[tile], x.hi[0], x.hi[1], x.hi[2], x.hi[3], hi[0], hi[1]);
  }
}
__device__ __forceinline__ Split split(const float (&c)[2][4], float sign) {
  Split s;
#pragma unroll
  for (int i = 0; i < 4; ++i) split(sign * c[i / 2][i % 2 * 2], sign * c[i / 2][i % 2 * 2 + 1], s.hi[i], s.lo[i]);
  return s;
}

// Column `column` of the inverse of the 16 x 16 block of I + A at `a`, by all lanes of two blocks; written over the block.
__device__ __forceinline__ void invert_block(float* a, int column) {
  float t[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum[4] = {};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 row = *reinterpret_cast<const float4*>(a + i * kStrideA + j);
      const float each[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (j + e < i) sum[e] += each[e] * t[j + e];
      }
    }
    t[i] = (i == column ? 1.0F : 0.0F) - ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16; ++i) a[i * kStrideA + column] = t[i];
}

// The block of T of rows 16 i .., columns 16 j .., given transposed.
__device__ __forceinline__ void store_block(std::uint8_t* image, int i, int j, const std::uint32_t (&f)[4]) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, row = 16 * i + matrix / 2 * 8 + lane % 8, piece = 2 * j + matrix % 2;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                   shared_address(image + row * 128 + (piece ^ (row % 8)) * 16)),
               "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3])
               : "memory");
}
// Columns 16 J .. of T.
template <int J>
__device__ __forceinline__ void solve_columns(const float (*a)[kStrideA], std::uint8_t* image) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  constexpr std::uint32_t kZero[4] = {};
#pragma unroll
  for (int i = 0; i < J; ++i) store_block(image, i, J, kZero);
  Split x[4 - J];  // T_ij^T of i = J ..
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int column = 16 * J + g + r % 2 * 8, row = 16 * J + 2 * t + r / 2 * 8;
    split(a[row][column], a[row + 1][column], x[0].hi[r], x[0].lo[r]);
  }
  store_block(image, J, J, x[0].hi);
#pragma unroll
  for (int i = J + 1; i < 4; ++i) {
    float sum[2][4] = {}, block[2][4] = {};
#pragma unroll
    for (int k = J; k < i; ++k) add_product(sum, x[k - J], &a[16 * i][16 * k]);
    add_product(block, split(sum, 1), &a[16 * i][16 * i]);
    x[i - J] = split(block, -1);
    store_block(image, i, J, x[i - J].hi);
  }
}

__global__ void __launch_bounds__(128, 3) prepare_kernel(GatedDeltaView a, Prepared* prepared) {
  extern __shared__ __align__(16) std::uint8_t bytes[];
  auto& shared = *reinterpret_cast<FactorShared*>(bytes);
  begin_kernel();
  const BatchView& b = a.batch;
  const RaggedItem item = ragged_item(b.sequences, blockIdx.x, [&](int s) { return chunks_of(b, s); });
  if (item.sequence < 0) return;
  const ChunkRows rows = chunk_rows(b, item.sequence, item.inside);
  const int key_head = blockIdx.y, thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const auto* qkv = static_cast<const __nv_bfloat16*>(a.qkv.data);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int piece = thread % 16, row = i % 8 * 8 + thread / 16, which = i / 8;
    copy_16(&(which == 0 ? shared.q : shared.k)[row][piece * 8],
            qkv + (rows.begin + min(row, rows.rows - 1)) * a.qkv.stride + (which * a.key_heads + key_head) * kDim + piece * 8,
            row >= rows.rows);
  }

  // Of row i of value head `which` of the two at hand: beta, and the sum of g / log 2 up to it within 32 rows.
  const int heads = a.heads / a.key_heads, which = thread / kChunk, i = thread % kChunk;
  const auto gates = [&](int h0) {
    const int h = key_head * heads + min(h0 + which, heads - 1);
    float decay = 0, beta = 0;
    if (i < rows.rows) {
      decay = -expf(a.a_log[h]) * softplus(load(a.a, rows.begin + i, h) + a.dt_bias[h]) * kLog2E;
      beta = sigmoid(load(a.b, rows.begin + i, h));
    }
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const float before = __shfl_up_sync(~0U, decay, o);
      if (lane >= o) decay += before;
    }
    if (i == 31) shared.half[which] = decay;
    shared.beta[which][i] = beta;
    return decay;
  };
  float decay = gates(0);
  wait_copies();
  __syncthreads();
  {
    const auto& matrix = thread < kChunk ? shared.k : shared.q;
    float sum = 0;
#pragma unroll 4
    for (int j = 0; j < kDim; j += 8) {
      const uint4 x = *reinterpret_cast<const uint4*>(&matrix[i][j]);
      const std::uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (const std::uint32_t word : words) {
        const float2 f = unpack(word);
        sum += f.x * f.x + f.y * f.y;
      }
    }
    const float factor = rsqrtf(sum + 1e-6F);
    if (thread < kChunk) shared.key[i] = factor;
    else shared.query[i] = factor * 0.08838834764831845F;  // 1 / sqrt(128)
  }
  const int block = (warp + blockIdx.x) % 4;
  float kk[8][4], qk[8][4];
  products(kk, qk, shared, block);

  for (int h0 = 0;;) {
    shared.total[which][i] = decay + (i >= 32 ? shared.half[which] : 0.0F);
    __syncthreads();  // also: nobody needs q and k any more
    {
      Prepared& to = shared.image[which];
      const float total = shared.total[which][i], last = shared.total[which][rows.rows - 1], beta = shared.beta[which][i];
      const float key = shared.key[i], grown = power_of_two(total);
      to.beta[i] = beta;
      to.in[i] = beta * grown * key;
      to.query[i] = grown * shared.query[i];
      to.keep[i] = i < rows.rows ? power_of_two(last - total) * key : 0.0F;
      to.total[i] = total;
      to.key[i] = key;
      if (i == 0) to.decay = power_of_two(last);
    }
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      if (h0 + w >= heads) break;
      std::uint8_t* const p = shared.image[w].p;
      const int row = block * 16 + g;
      const float total[2] = {shared.total[w][row], shared.total[w][row + 8]}, query[2] = {shared.query[row], shared.query[row + 8]};
      const float in[2] = {shared.beta[w][row] * shared.key[row], shared.beta[w][row + 8] * shared.key[row + 8]};
#pragma unroll
      for (int tile = 0; tile < 8; ++tile) {
        const int column = tile * 8 + 2 * t;
        float weight[2][2] = {};
        if (tile / 2 <= block) {
          const float2 at = *reinterpret_cast<const float2*>(&shared.total[w][column]);
          const float2 key = *reinterpret_cast<const float2*>(&shared.key[column]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int r = row + 8 * half;
            const float x = column <= r ? power_of_two(total[half] - at.x) * key.x : 0.0F;
            const float y = column + 1 <= r ? power_of_two(total[half] - at.y) * key.y : 0.0F;
            *reinterpret_cast<float2*>(&shared.a[w][r][column]) =
                make_float2(in[half] * x * kk[tile][2 * half], in[half] * y * kk[tile][2 * half + 1]);
            weight[half][0] = query[half] * x * qk[tile][2 * half];
            weight[half][1] = query[half] * y * qk[tile][2 * half + 1];
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = row + 8 * half;
          *reinterpret_cast<std::uint32_t*>(p + r * 128 + (tile ^ (r % 8)) * 16 + t * 4) = pack(weight[half][0], weight[half][1]);
        }
      }
    }
    __syncthreads();
    if (h0 + which < heads) invert_block(&shared.a[which][i / 16 * 16][i / 16 * 16], i % 16);
    __syncthreads();
    if (h0 + which < heads) {
      if (warp % 2 == 0) {
        solve_columns<0>(shared.a[which], shared.image[which].t);
      } else {
        solve_columns<1>(shared.a[which], shared.image[which].t);
        solve_columns<2>(shared.a[which], shared.image[which].t);
        solve_columns<3>(shared.a[which], shared.image[which].t);
      }
    }
    fence_copies();
    __syncthreads();
    if (i == 0 && h0 + which < heads) {
      store_bytes(prepared + std::int64_t{blockIdx.x} * a.heads + key_head * heads + h0 + which, &shared.image[which], sizeof(Prepared));
      stores_read();
    }
    if ((h0 += 2) >= heads) return;
    decay = gates(h0);
    __syncthreads();
  }
}

}  // namespace strata::cuda
