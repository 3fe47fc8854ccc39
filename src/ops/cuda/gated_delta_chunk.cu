// gated_delta in chunks of 64 rows on the tensor cores, for runs longer than kStepRows; key_dim = value_dim = 128, bf16.
// Yang, Kautz and Hatamizadeh 2024, section 3.3 (the WY form of the gated delta rule). Chunks end at absolute positions that
// are multiples of 64, so that a pass that resumes there repeats the arithmetic of one that did not stop.
//
// Of a chunk: G_i = sum of g up to row i; r_i and p_i factors that normalise k_i and q_i (p with 1 / sqrt(K)); S the state before.
//   A_ij = beta_i e^(G_i - G_j) r_i r_j k_i . k_j   (j < i),   T = (I + A)^-1,   P_ij = e^(G_i - G_j) p_i r_j q_i . k_j  (j <= i)
//   D = T (beta V - diag(beta e^G r) K S),   O = diag(e^G p) Q S + P D,   S <- e^(G_n) S + K^T diag(e^(G_n - G) r) D
// The first kernel computes T, P and the diagonals of all chunks at once; the second walks the chunks of a sequence with the
// transposed state in registers: a warpgroup owns 64 value columns of a head, and every product has its left operand in
// registers (S^T, the right side's transpose, D^T), so nothing passes through shared memory between them.
#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/delta_chunk.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/mma.cuh"
#include "ops/cuda/device/ragged.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

// ---- first kernel: a block of four warps per chunk and key head ----

constexpr int kStride = kDim + 8;    // of q and k in shared memory: no bank conflicts for ldmatrix
constexpr int kStrideA = kChunk + 4;

struct PrepareShared {
  __nv_bfloat16 q[kChunk][kStride], k[kChunk][kStride];
  float a[2][kChunk][kStrideA];  // A, then T, of two value heads
  float key[kChunk], query[kChunk];
  float beta[2][kChunk], total[2][kChunk], half[2];
};

__device__ __forceinline__ void load_fragments(std::uint32_t (&f)[4], const __nv_bfloat16* row, int column) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(shared_address(row + column)));
}

// c [16 rows of `left` from row 16 * warp, 64] = left k^T.
__device__ __forceinline__ void products(float (&c)[8][4], const __nv_bfloat16 (*left)[kStride], const __nv_bfloat16 (*k)[kStride]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (auto& tile : c) tile[0] = tile[1] = tile[2] = tile[3] = 0;
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[4];
    load_fragments(a, left[warp * 16 + lane % 16], step * 16 + lane / 16 * 8);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t b[4];  // rows 16 pair .. + 7 and .. + 15: k low and high of each
      load_fragments(b, k[pair * 16 + lane / 16 * 8 + lane % 8], step * 16 + lane / 8 % 2 * 8);
      mma_bf16(c[2 * pair], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(c[2 * pair + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
}

// Column `column` of (I + a)^-1 for strictly lower triangular a, by substitution; written over a by write().
__device__ __forceinline__ void invert_column(const float (*a)[kStrideA], int column, float (&t)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    float sum[4] = {};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 row = *reinterpret_cast<const float4*>(&a[i][j]);
      const float each[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (j + e < i) sum[e] += each[e] * t[j + e];
      }
    }
    t[i] = (i == column ? 1.0F : 0.0F) - ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

__global__ void __launch_bounds__(128) prepare_kernel(GatedDeltaView a, Prepared* prepared) {
  extern __shared__ __align__(16) std::uint8_t bytes[];
  auto& shared = *reinterpret_cast<PrepareShared*>(bytes);
  begin_kernel();
  const BatchView& b = a.batch;
  const RaggedItem item = ragged_item(b.sequences, blockIdx.x, [&](int s) { return chunks_of(b, s); });
  if (item.sequence < 0) return;
  const ChunkRows rows = chunk_rows(b, item.sequence, item.inside);
  const int key_head = blockIdx.y, thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const auto* qkv = static_cast<const __nv_bfloat16*>(a.qkv.data);
  for (int i = thread; i < 2 * kChunk * (kDim / 8); i += 128) {
    const int piece = i % (kDim / 8), row = i / (kDim / 8) % kChunk, which = i / (kDim / 8 * kChunk);
    uint4 x = make_uint4(0, 0, 0, 0);
    if (row < rows.rows) {
      x = *reinterpret_cast<const uint4*>(qkv + (rows.begin + row) * a.qkv.stride + (which * a.key_heads + key_head) * kDim + piece * 8);
    }
    *reinterpret_cast<uint4*>(&(which == 0 ? shared.q : shared.k)[row][piece * 8]) = x;
  }
  __syncthreads();
  {
    const auto& matrix = thread < kChunk ? shared.k : shared.q;
    float sum = 0;
    for (int i = 0; i < kDim; i += 8) {
      const uint4 x = *reinterpret_cast<const uint4*>(&matrix[thread % kChunk][i]);
      const std::uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (const std::uint32_t word : words) {
        const float2 f = unpack(word);
        sum += f.x * f.x + f.y * f.y;
      }
    }
    const float factor = rsqrtf(sum + 1e-6F);
    if (thread < kChunk) shared.key[thread] = factor;
    else shared.query[thread - kChunk] = factor * 0.08838834764831845F;  // 1 / sqrt(128)
  }
  float kk[8][4], qk[8][4];
  products(kk, shared.k, shared.k);
  products(qk, shared.q, shared.k);

  const int heads = a.heads / a.key_heads;
  for (int h0 = 0; h0 < heads; h0 += 2) {
    const int which = thread / kChunk, i = thread % kChunk, h = key_head * heads + min(h0 + which, heads - 1);
    float decay = 0, beta = 0;
    if (i < rows.rows) {
      decay = -expf(a.a_log[h]) * softplus(load(a.a, rows.begin + i, h) + a.dt_bias[h]);
      beta = sigmoid(load(a.b, rows.begin + i, h));
    }
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const float before = __shfl_up_sync(~0U, decay, o);
      if (lane >= o) decay += before;
    }
    if (i == 31) shared.half[which] = decay;
    __syncthreads();
    const float total = decay + (i >= 32 ? shared.half[which] : 0.0F);
    shared.total[which][i] = total;
    shared.beta[which][i] = beta;
    __syncthreads();
    Prepared* const to = prepared + std::int64_t{blockIdx.x} * a.heads + h;
    if (h0 + which < heads) {
      const float key = shared.key[i], last = shared.total[which][rows.rows - 1];
      to->beta[i] = beta;
      to->in[i] = beta * expf(total) * key;
      to->query[i] = expf(total) * shared.query[i];
      to->keep[i] = i < rows.rows ? expf(last - total) * key : 0.0F;
      to->total[i] = total;
      to->key[i] = key;
    }
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      if (h0 + w >= heads) break;
      Prepared& p = prepared[std::int64_t{blockIdx.x} * a.heads + key_head * heads + h0 + w];
#pragma unroll
      for (int tile = 0; tile < 8; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = warp * 16 + g + 8 * half, column = tile * 8 + 2 * t;
          float weight[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int j = column + e;
            const bool inside = j <= row && row < rows.rows;
            const float between = inside ? expf(shared.total[w][row] - shared.total[w][j]) * shared.key[j] : 0.0F;
            shared.a[w][row][j] = j < row ? shared.beta[w][row] * shared.key[row] * between * kk[tile][2 * half + e] : 0.0F;
            weight[e] = shared.query[row] * between * qk[tile][2 * half + e];
          }
          *reinterpret_cast<std::uint32_t*>(p.p + row * 128 + (tile ^ (row % 8)) * 16 + t * 4) = pack(weight[0], weight[1]);
        }
      }
    }
    __syncthreads();
    float column[kChunk];
    invert_column(shared.a[which], i, column);
    __syncthreads();
#pragma unroll
    for (int row = 0; row < kChunk; ++row) shared.a[which][row][i] = column[row];
    __syncthreads();
    if (h0 + which < heads) {
      for (int j = i; j < kChunk * 8; j += kChunk) {
        const int row = j / 8, piece = j % 8;
        const float* from = &shared.a[which][row][piece * 8];
        *reinterpret_cast<uint4*>(to->t + row * 128 + (piece ^ (row % 8)) * 16) =
            make_uint4(pack(from[0], from[1]), pack(from[2], from[3]), pack(from[4], from[5]), pack(from[6], from[7]));
      }
    }
    __syncthreads();
  }
}

// ---- second kernel: a producer warp and a warpgroup per sequence, head and half of the value columns ----

constexpr int kStages = 3;

struct Stage {
  std::uint8_t k[2 * kBox], q[2 * kBox], v[kBox];
  Prepared prepared;
  std::uint8_t pad[1024 - sizeof(Prepared) % 1024];
};
constexpr int kStageCopies = 5 * kBox + static_cast<int>(sizeof(Prepared));
constexpr int kWalkShared = 1024 + kStages * static_cast<int>(sizeof(Stage)) + kBox;
static_assert(sizeof(Stage) % 1024 == 0 && kWalkShared <= 227 * 1024);

__device__ __forceinline__ void produce(const GatedDeltaView& a, const TensorMap* qkv, const Prepared* prepared, int s, int chunks,
                                        Stage* stages, std::uint64_t* full, std::uint64_t* empty) {
  const int h = blockIdx.y, key_head = h / (a.heads / a.key_heads);
  Ring<kStages> ring;
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next()) {
    Stage& stage = stages[ring.stage];
    std::uint64_t* const done = full + ring.stage;
    const int row = chunk_rows(a.batch, s, chunk).begin;
    barrier_wait(empty + ring.stage, ring.parity ^ 1);
    barrier_expect(done, kStageCopies);
#pragma unroll
    for (int box = 0; box < 2; ++box) {
      copy_box(stage.k + box * kBox, qkv, (a.key_heads + key_head) * kDim + box * 64, row, done);
      copy_box(stage.q + box * kBox, qkv, key_head * kDim + box * 64, row, done);
    }
    copy_box(stage.v, qkv, (2 * a.key_heads + h) * kDim + static_cast<int>(blockIdx.x) * 64, row, done);
    copy_bytes(&stage.prepared, prepared + std::int64_t{chunk} * a.heads + h, sizeof(Prepared), done);
  }
}

// In all fragments: value column v = 16 warp + g (+ 8) of this half, and key or row index 8 j + 2 t (+ 1).
struct Walker {
  const GatedDeltaView& a;
  const int thread = threadIdx.x - 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  float state[kDim / 2];              // S^T
  std::uint32_t left[kDim / 16][4];   // S^T in bf16
  float right[kChunk / 2];            // the right side's transpose, then D^T
  float out[kChunk / 2];              // O^T
  std::uint32_t done[kChunk / 4];     // the chunk before's O^T in bf16, to be written

  __device__ std::int64_t place(int slot, int half) const {
    return slot * a.state.stride + std::int64_t{static_cast<int>(blockIdx.y)} * kDim * kDim + blockIdx.x * 64 + warp * 16 + g + 8 * half;
  }
  __device__ void load_state(int slot) {
    const auto* from = static_cast<const float*>(a.state.data);
#pragma unroll
    for (float& x : state) x = 0;
    if (slot < 0) return;
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j) state[j] = from[place(slot, j / 2 % 2) + (j / 4 * 8 + 2 * t + j % 2) * kDim];
  }
  __device__ void store_state(int slot, const float (&x)[kDim / 2]) const {
    auto* to = static_cast<float*>(a.state.data);
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j) to[place(slot, j / 2 % 2) + (j / 4 * 8 + 2 * t + j % 2) * kDim] = x[j];
  }
  __device__ void round_state() {
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) left[k][i] = pack(state[8 * k + 2 * i], state[8 * k + 2 * i + 1]);
    }
  }
  // x * factor of each row, as a left operand over rows.
  template <typename Factor>
  __device__ static void fragments(std::uint32_t (&to)[kChunk / 16][4], const float (&x)[kChunk / 2], const Factor& factor) {
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 f = factor(2 * k + i / 2);
        to[k][i] = pack(x[8 * k + 2 * i] * f.x, x[8 * k + 2 * i + 1] * f.y);
      }
    }
  }
  __device__ float2 pair(const float* of_rows, int j) const { return *reinterpret_cast<const float2*>(of_rows + 8 * j + 2 * t); }

  __device__ void issue_right(const Stage& s) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
      Product<kChunk>::registers(right, left[k], rows_descriptor(shared_address(s.k) + k / 4 * kBox) + 2 * (k % 4), k > 0);
    products_commit();
  }
  __device__ void issue_out(const Stage& s) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
      Product<kChunk>::registers(out, left[k], rows_descriptor(shared_address(s.q) + k / 4 * kBox) + 2 * (k % 4), k > 0);
    products_commit();
  }
  // right = beta V - (beta e^G r) right; zero for rows that do not exist.
  __device__ void finish_right(const Stage& s, int rows) {
#pragma unroll
    for (int j = 0; j < kChunk / 8; j += 2) {  // 16 rows of v, 16 columns of this warp, transposed as they are read
      std::uint32_t v[4];
      const int row = j * 8 + lane % 16, piece = warp * 2 + lane / 16;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                   : "r"(shared_address(s.v + row * 128 + (piece ^ (row % 8)) * 16)));
      // v[0]: rows 8 j .., columns g; v[1]: rows 8 (j + 1) ..; v[2], v[3]: columns g + 8.
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float2 beta = pair(s.prepared.beta, j + e), in = pair(s.prepared.in, j + e);
        const int first = (j + e) * 8 + 2 * t;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float2 value = unpack(v[half * 2 + e]);
          float* const r = right + 4 * (j + e) + 2 * half;
          r[0] = first < rows ? beta.x * value.x - in.x * r[0] : 0.0F;
          r[1] = first + 1 < rows ? beta.y * value.y - in.y * r[1] : 0.0F;
        }
      }
    }
  }
  __device__ void issue_solve(const Stage& s, const std::uint32_t (&from)[kChunk / 16][4]) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      Product<kChunk>::registers(right, from[k], rows_descriptor(shared_address(s.prepared.t)) + 2 * k, k > 0);
    products_commit();
  }
  __device__ void issue_mix(const Stage& s, const std::uint32_t (&from)[kChunk / 16][4]) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      Product<kChunk>::registers(out, from[k], rows_descriptor(shared_address(s.prepared.p)) + 2 * k, true);
    products_commit();
  }
  __device__ static void issue_state(const Stage& s, const std::uint32_t (&from)[kChunk / 16][4], float (&to)[kDim / 2]) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      Product<kDim>::columns(to, from[k], columns_descriptor(shared_address(s.k), kBox) + 128 * k, true);
    products_commit();
  }
  __device__ void sync() const { asm volatile("bar.sync 1, 128;" ::: "memory"); }

  // Rows of k beyond the chunk's are some other sequence's: zeros, since they meet zeros of D^T and may be anything.
  __device__ void clear_keys(Stage& s, int rows) const {
    if (rows == kChunk) return;
    for (int i = thread; i < (kChunk - rows) * 16; i += 128)
      *reinterpret_cast<uint4*>(s.k + i / 8 % 2 * kBox + (rows + i / 16) * 128 + i % 8 * 16) = make_uint4(0, 0, 0, 0);
    fence_copies();
    sync();
  }
  // The state after row `row` of the chunk, into a slot.
  __device__ void save_inside(const Stage& s, int row, int slot) const {
    const float last = s.prepared.total[row], decay = expf(last);
    float copy[kDim / 2];
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j) copy[j] = state[j] * decay;
    std::uint32_t from[kChunk / 16][4];
    fragments(from, right, [&](int j) {
      const float2 total = pair(s.prepared.total, j), key = pair(s.prepared.key, j);
      const int first = 8 * j + 2 * t;
      return make_float2(first <= row ? expf(last - total.x) * key.x : 0.0F, first + 1 <= row ? expf(last - total.y) * key.y : 0.0F);
    });
    issue_state(s, from, copy);
    products_wait<0>();
    store_state(slot, copy);
  }
  __device__ void round_out() {
#pragma unroll
    for (int j = 0; j < kChunk / 4; ++j) done[j] = pack(out[2 * j], out[2 * j + 1]);
  }
  // `done` to rows of the result, by way of `staging` [64 rows, 64 columns], swizzled.
  __device__ void write_out(std::uint8_t* staging, const ChunkRows& rows) const {
    sync();
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) {
      const int row = j * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
      asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(
                       shared_address(staging + row * 128 + (piece ^ (row % 8)) * 16)),
                   "r"(done[2 * j]), "r"(done[2 * j + 1])
                   : "memory");
    }
    sync();
    for (int i = thread; i < rows.rows * 8; i += 128) {
      const int row = i / 8, piece = i % 8;
      const uint4 x = *reinterpret_cast<const uint4*>(staging + row * 128 + (piece ^ (row % 8)) * 16);
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.out.data) + (rows.begin + row) * a.out.stride +
                                static_cast<int>(blockIdx.y) * kDim + static_cast<int>(blockIdx.x) * 64 + piece * 8) = x;
    }
  }
};

__device__ __forceinline__ void walk(const GatedDeltaView& a, int s, int chunks, Stage* stages, std::uint8_t* staging, std::uint64_t* full,
                                     std::uint64_t* empty) {
  Run run = run_of(a.batch, s);
  Walker w{.a = a};
  w.load_state(run.state_in);
#pragma unroll
  for (std::uint32_t& x : w.done) x = 0;
  ChunkRows written{run.begin, 0};  // rows whose results are in w.done
  Ring<kStages> ring;
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next()) {
    Stage& stage = stages[ring.stage];
    const ChunkRows rows = chunk_rows(a.batch, s, chunk);
    w.round_state();
    barrier_wait(full + ring.stage, ring.parity);
    w.clear_keys(stage, rows.rows);
    w.issue_right(stage);
    w.write_out(staging, written);
    w.issue_out(stage);
    products_wait<1>();
    w.finish_right(stage, rows.rows);
    std::uint32_t from[kChunk / 16][4], mixed[kChunk / 16][4];
    Walker::fragments(from, w.right, [](int) { return make_float2(1, 1); });
    w.issue_solve(stage, from);
    products_wait<0>();
    while (run.saves != run.last_save && run.saves[0] < rows.begin + rows.rows - 1) {
      w.save_inside(stage, run.saves[0] - rows.begin, run.saves[1]);
      run.saves += 2;
    }
    Walker::fragments(from, w.right, [&](int j) { return w.pair(stage.prepared.keep, j); });
    Walker::fragments(mixed, w.right, [](int) { return make_float2(1, 1); });
    const float decay = expf(stage.prepared.total[rows.rows - 1]);
#pragma unroll
    for (float& x : w.state) x *= decay;
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) {
      const float2 f = w.pair(stage.prepared.query, j);
      w.out[4 * j] *= f.x, w.out[4 * j + 1] *= f.y, w.out[4 * j + 2] *= f.x, w.out[4 * j + 3] *= f.y;
    }
    Walker::issue_state(stage, from, w.state);
    w.issue_mix(stage, mixed);
    products_wait<0>();
    barrier_arrive(empty + ring.stage);
    w.round_out();
    written = rows;
    run.save(rows.begin + rows.rows - 1, [&](int slot) { w.store_state(slot, w.state); });
  }
  w.write_out(staging, written);
}

__global__ void __launch_bounds__(256, 1)
    walk_kernel(GatedDeltaView a, const __grid_constant__ TensorMap qkv, const Prepared* prepared) {
  extern __shared__ std::uint8_t bytes[];
  __shared__ std::uint64_t full[kStages], empty[kStages];
  auto* stages = reinterpret_cast<Stage*>(bytes + (1024 - shared_address(bytes) % 1024) % 1024);
  auto* staging = reinterpret_cast<std::uint8_t*>(stages + kStages);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, 128);
    }
    barrier_init_done();
    prefetch_map(&qkv);
  }
  begin_kernel();
  __syncthreads();
  const int s = blockIdx.z, chunks = chunks_of(a.batch, s);
  if (chunks == 0) return;
  if (threadIdx.x < 32) {
    const int before = ragged_total(s, [&](int i) { return chunks_of(a.batch, i); });
    if (threadIdx.x == 0) produce(a, &qkv, prepared + std::int64_t{before} * a.heads, s, chunks, stages, full, empty);
  } else if (threadIdx.x >= 128) {
    walk(a, s, chunks, stages, staging, full, empty);
  }
}

// Chunks there can be: two more than whole ones for each long run.
int most_chunks(const BatchView& b) { return b.rows / kChunk + 2 * min(b.sequences, b.rows / (kStepRows + 1)); }

}  // namespace

std::size_t gated_delta_chunk_bytes(const GatedDeltaView& args) {
  return static_cast<std::size_t>(most_chunks(args.batch)) * args.heads * sizeof(Prepared);
}

void launch_gated_delta_chunk(const GatedDeltaView& args, void* scratch, Stream stream) {
  allow_shared<prepare_kernel, sizeof(PrepareShared)>();
  allow_shared<walk_kernel, kWalkShared>();
  auto* prepared = static_cast<Prepared*>(scratch);
  const std::int64_t columns = (2 * std::int64_t{args.key_heads} + args.heads) * kDim;
  const TensorMap qkv = make_tensor_map(args.qkv, args.batch.rows, columns, kChunk);
  launch(prepare_kernel, dim3(static_cast<unsigned>(most_chunks(args.batch)), static_cast<unsigned>(args.key_heads)), 128,
         sizeof(PrepareShared), stream, args, prepared);
  launch(walk_kernel, dim3(2, static_cast<unsigned>(args.heads), static_cast<unsigned>(args.batch.sequences)), 256, kWalkShared, stream, args,
         qkv, prepared);
}

}  // namespace strata::cuda
