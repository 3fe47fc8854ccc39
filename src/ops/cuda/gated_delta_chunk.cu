// gated_delta in chunks of 64 rows on the tensor cores, for runs longer than kStepRows; key_dim = value_dim = 128, bf16.
// Yang, Kautz and Hatamizadeh 2024, section 3.3 (the WY form of the gated delta rule). Chunks end at absolute positions that
// are multiples of 64, so that a pass that resumes there repeats the arithmetic of one that did not stop.
//
// Of a chunk: G_i = sum of g up to row i; r_i and p_i factors that normalise k_i and q_i (p with 1 / sqrt(K)); S the state before.
//   A_ij = beta_i e^(G_i - G_j) r_i r_j k_i . k_j   (j < i),   T = (I + A)^-1,   P_ij = e^(G_i - G_j) p_i r_j q_i . k_j  (j <= i)
//   D = T (beta V - diag(beta e^G r) K S),   O = diag(e^G p) Q S + P D,   S <- e^(G_n) S + K^T diag(e^(G_n - G) r) D
// The first kernel (device/delta_factors.cuh) computes T, P and the diagonals of all chunks at once; the second walks the chunks of
// a sequence, a block for 64 value columns of a head. What a chunk must wait for is the chain of three products from S to S: one warpgroup
// does only these, with S^T in registers, and every left operand (S^T, the right side's transpose, D^T) comes from registers.
// Another makes O of the bf16 copies of S^T and D^T that the first leaves in shared memory, while the first goes on.
#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/delta_chunk.cuh"
#include "ops/cuda/device/delta_factors.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/ragged.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

constexpr int kStages = 3;

struct Stage {
  std::uint8_t k[2 * kBox], q[2 * kBox], v[kBox];
  alignas(1024) Prepared prepared;
};
constexpr int kStageCopies = 5 * kBox + static_cast<int>(sizeof(Prepared));
struct WalkShared {
  Stage stages[kStages];
  alignas(1024) std::uint8_t state[2 * kBox];  // S^T in bf16: 64 value columns, 128 keys; swizzled boxes as those of k
  std::uint8_t mixed[kBox];                    // D^T: 64 value columns, 64 rows
  std::uint8_t staging[kBox];                  // results: 64 rows, 64 value columns
  std::uint64_t full[kStages], empty[kStages], state_full, state_empty, mixed_full, mixed_empty;
};
constexpr int kWalkShared = 1024 + static_cast<int>(sizeof(WalkShared));
static_assert(sizeof(Stage) % 1024 == 0 && kWalkShared <= 227 * 1024);

__device__ __forceinline__ void produce(const GatedDeltaView& a, const TensorMap* qkv, const Prepared* prepared, ChunkRows rows,
                                        WalkShared& shared) {
  const int h = blockIdx.y, key_head = h / (a.heads / a.key_heads);
  Ring<kStages> ring;
  do {
    Stage& stage = shared.stages[ring.stage];
    std::uint64_t* const done = shared.full + ring.stage;
    barrier_wait(shared.empty + ring.stage, ring.parity ^ 1);
    barrier_expect(done, kStageCopies);
#pragma unroll
    for (int box = 0; box < 2; ++box) copy_box(stage.k + box * kBox, qkv, (a.key_heads + key_head) * kDim + box * 64, rows.begin, done);
    copy_box(stage.v, qkv, (2 * a.key_heads + h) * kDim + static_cast<int>(blockIdx.x) * 64, rows.begin, done);
    copy_bytes(&stage.prepared, prepared + h, sizeof(Prepared), done);
#pragma unroll
    for (int box = 0; box < 2; ++box) copy_box(stage.q + box * kBox, qkv, key_head * kDim + box * 64, rows.begin, done);
    prepared += a.heads;
    ring.next();
  } while (rows.next());
}

// Rows 8 j + 2 t and the next of an array by rows.
__device__ __forceinline__ float2 pair(const float* of_rows, int j) {
  return *reinterpret_cast<const float2*>(of_rows + 8 * j + threadIdx.x % 4 * 2);
}

// The chain from state to state. In all fragments: value column v = 16 warp + g (+ 8) of this half, and key or row index 8 j + 2 t (+ 1).
struct Chain {
  const GatedDeltaView& a;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  float state[kDim / 2];              // S^T
  std::uint32_t left[kDim / 16][4];   // S^T in bf16
  float right[kChunk / 2];            // the right side's transpose, then D^T
  float values[kChunk / 2];           // the next chunk's beta V, transposed

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
  // Keys first .. of a state.
  template <int N>
  __device__ void store_state(int slot, const float (&x)[N], int first) const {
    auto* to = static_cast<float*>(a.state.data);
#pragma unroll
    for (int j = 0; j < N; ++j) to[place(slot, j / 2 % 2) + (first + j / 4 * 8 + 2 * t + j % 2) * kDim] = x[j];
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
  // A left operand's 16 columns from 16 k, into swizzled boxes of 64 columns.
  __device__ void leave(std::uint8_t* boxes, int k, const std::uint32_t (&f)[4]) const {
    const int row = warp * 16 + lane % 16, piece = k % 4 * 2 + lane / 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                     shared_address(boxes + k / 4 * kBox + row * 128 + (piece ^ (row % 8)) * 16)),
                 "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3])
                 : "memory");
  }

  // Rows of k and v beyond the chunk's are some other sequence's: zeros, since they meet zeros and may be anything.
  __device__ void clear(Stage& s, int rows) const {
    for (int i = thread; i < (kChunk - rows) * 24; i += 128) {
      const int box = i / 8 % 3, at = (rows + i / 24) * 128 + i % 8 * 16;
      *reinterpret_cast<uint4*>((box == 2 ? s.v : s.k + box * kBox) + at) = make_uint4(0, 0, 0, 0);
    }
    fence_copies();
    asm volatile("bar.sync 1, 128;" ::: "memory");
  }
  // What the right side of a chunk needs but for the state.
  __device__ void prepare_right(Stage& s, int rows) {
    if (rows < kChunk) clear(s, rows);
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
        const float2 beta = pair(s.prepared.beta, j + e);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float2 value = unpack(v[half * 2 + e]);
          values[4 * (j + e) + 2 * half] = beta.x * value.x;
          values[4 * (j + e) + 2 * half + 1] = beta.y * value.y;
        }
      }
    }
  }
  __device__ void issue_right(const Stage& s) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
      Product<kChunk>::registers(right, left[k], rows_descriptor(shared_address(s.k) + k / 4 * kBox) + 2 * (k % 4), k > 0);
    products_commit();
  }
  __device__ void finish_right(const float2 (&in)[kChunk / 8]) {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) right[i] = values[i] - (i % 2 == 0 ? in[i / 4].x : in[i / 4].y) * right[i];
  }
  __device__ void issue_solve(const Stage& s, const std::uint32_t (&from)[kChunk / 16][4]) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      Product<kChunk>::registers(right, from[k], rows_descriptor(shared_address(s.prepared.t)) + 2 * k, k > 0);
    products_commit();
  }
  __device__ static void issue_state(const Stage& s, const std::uint32_t (&from)[kChunk / 16][4], float (&to)[kDim / 2]) {
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      Product<kDim>::columns(to, from[k], columns_descriptor(shared_address(s.k), kBox) + 128 * k, true);
    products_commit();
  }
  // The state after row `row` of the chunk, into a slot; half the keys at a time, for want of registers.
  __device__ void save_inside(const Stage& s, int row, int slot, std::uint32_t (&from)[kChunk / 16][4]) const {
    const float last = s.prepared.total[row], decay = power_of_two(last);
    fragments(from, right, [&](int j) {
      const float2 total = pair(s.prepared.total, j), key = pair(s.prepared.key, j);
      const int first = 8 * j + 2 * t;
      return make_float2(first <= row ? power_of_two(last - total.x) * key.x : 0.0F,
                         first + 1 <= row ? power_of_two(last - total.y) * key.y : 0.0F);
    });
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float copy[kDim / 4];
#pragma unroll
      for (int j = 0; j < kDim / 4; ++j) copy[j] = state[half * (kDim / 4) + j] * decay;
      products_begin();
#pragma unroll
      for (int k = 0; k < kChunk / 16; ++k)
        Product<kDim / 2>::columns(copy, from[k], columns_descriptor(shared_address(s.k) + half * kBox, kBox) + 128 * k, true);
      products_commit();
      products_wait<0>();
      store_state(slot, copy, half * 64);
    }
  }
};

__device__ __forceinline__ void chain(const GatedDeltaView& a, int s, ChunkRows rows, WalkShared& shared) {
  Run run = run_of(a.batch, s);
  // Row of the first save not done yet.
  const auto save_at = [&] { return run.saves == run.last_save ? 0x7fffffff : run.saves[0]; };
  const auto next_save = [&] {
    run.saves += 2;
    return save_at();
  };
  int save = save_at();
  Chain w{.a = a};
  w.load_state(run.state_in);
  w.round_state();
  barrier_wait(shared.full, 0);
  w.prepare_right(shared.stages[0], rows.rows);
  Ring<kStages> ring;
  for (int parity = 0;; parity ^= 1) {
    Stage& stage = shared.stages[ring.stage];
    std::uint64_t* const empty = shared.empty + ring.stage;
    const int last = rows.begin + rows.rows - 1;
    w.issue_right(stage);
    barrier_wait(&shared.state_empty, parity ^ 1);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) w.leave(shared.state, k, w.left[k]);
    fence_copies();
    barrier_arrive(&shared.state_full);
    float2 factor[kChunk / 8];
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) factor[j] = pair(stage.prepared.in, j);
    products_wait<0>();
    w.finish_right(factor);
    std::uint32_t from[kChunk / 16][4], mixed[kChunk / 16][4];
    Chain::fragments(from, w.right, [](int) { return make_float2(1, 1); });
    w.issue_solve(stage, from);
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) factor[j] = pair(stage.prepared.keep, j);
    const float decay = stage.prepared.decay;
    if (save < last) {
      products_wait<0>();
      for (; save < last; save = next_save()) w.save_inside(stage, save - rows.begin, run.saves[1], from);
    }
#pragma unroll
    for (float& x : w.state) {
      x *= decay;
      asm volatile("" : "+f"(x));  // now, while products run
    }
    products_wait<0>();
    Chain::fragments(from, w.right, [&](int j) { return factor[j]; });
    Chain::issue_state(stage, from, w.state);
    Chain::fragments(mixed, w.right, [](int) { return make_float2(1, 1); });
    barrier_wait(&shared.mixed_empty, parity ^ 1);
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) w.leave(shared.mixed, k, mixed[k]);
    fence_copies();
    barrier_arrive(&shared.mixed_full);
    const bool more = rows.next();
    if (more) {
      ring.next();
      barrier_wait(shared.full + ring.stage, ring.parity);
      w.prepare_right(shared.stages[ring.stage], rows.rows);
    }
    products_wait<0>();
    barrier_arrive(empty);
    for (; save == last; save = next_save()) w.store_state(run.saves[1], w.state, 0);
    if (!more) return;
    w.round_state();
  }
}

// O of each chunk. In the fragments: row 16 warp + g (+ 8), value column 8 j + 2 t (+ 1).
__device__ __forceinline__ void results(const GatedDeltaView& a, ChunkRows rows, WalkShared& shared) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4;
  float out[kChunk / 2];
  Ring<kStages> ring;
  auto* const to = static_cast<__nv_bfloat16*>(a.out.data) + static_cast<int>(blockIdx.y) * kDim + static_cast<int>(blockIdx.x) * 64;
  int parity = 0;
  do {
    const Stage& stage = shared.stages[ring.stage];
    barrier_wait(shared.full + ring.stage, ring.parity);
    barrier_wait(&shared.state_full, parity);
    products_begin();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
      Product<kChunk>::shared(out, rows_descriptor(shared_address(stage.q) + k / 4 * kBox) + 2 * (k % 4),
                              rows_descriptor(shared_address(shared.state) + k / 4 * kBox) + 2 * (k % 4), k > 0);
    products_commit();
    const float factor[2] = {stage.prepared.query[warp * 16 + g], stage.prepared.query[warp * 16 + g + 8]};
    products_wait<0>();
    barrier_arrive(&shared.state_empty);
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) out[i] *= factor[i / 2 % 2];
    barrier_wait(&shared.mixed_full, parity);
    products_begin();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      Product<kChunk>::shared(out, rows_descriptor(shared_address(stage.prepared.p)) + 2 * k, rows_descriptor(shared_address(shared.mixed)) + 2 * k,
                              true);
    products_commit();
    products_wait<0>();
    barrier_arrive(&shared.mixed_empty);
    barrier_arrive(shared.empty + ring.stage);
    // Each warp its 16 rows, by way of shared memory: whole lines.
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kChunk / 8; j += 2) {
      const int row = warp * 16 + lane % 16, piece = j + lane / 16;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                       shared_address(shared.staging + row * 128 + (piece ^ (row % 8)) * 16)),
                   "r"(pack(out[4 * j], out[4 * j + 1])), "r"(pack(out[4 * j + 2], out[4 * j + 3])),
                   "r"(pack(out[4 * j + 4], out[4 * j + 5])), "r"(pack(out[4 * j + 6], out[4 * j + 7]))
                   : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp * 16 + i * 4 + lane / 8, piece = lane % 8;
      if (row < rows.rows) {
        *reinterpret_cast<uint4*>(to + (rows.begin + row) * a.out.stride + piece * 8) =
            *reinterpret_cast<const uint4*>(shared.staging + row * 128 + (piece ^ (row % 8)) * 16);
      }
    }
    ring.next();
    parity ^= 1;
  } while (rows.next());
}

__global__ void __launch_bounds__(384, 1)
    walk_kernel(GatedDeltaView a, const __grid_constant__ TensorMap qkv, const Prepared* prepared) {
  extern __shared__ std::uint8_t bytes[];
  auto& shared = *reinterpret_cast<WalkShared*>(bytes + (1024 - shared_address(bytes) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared.full + i, 1);
      barrier_init(shared.empty + i, 256);
    }
    for (std::uint64_t* barrier : {&shared.state_full, &shared.state_empty, &shared.mixed_full, &shared.mixed_empty}) barrier_init(barrier, 128);
    barrier_init_done();
    prefetch_map(&qkv);
  }
  begin_kernel();
  __syncthreads();
  const int s = blockIdx.z;
  if (chunks_of(a.batch, s) == 0) return;
  const ChunkRows rows = first_chunk(a.batch, s);
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
    if (threadIdx.x < 32) {
      const int before = ragged_total(s, [&](int i) { return chunks_of(a.batch, i); });
      if (threadIdx.x == 0) produce(a, &qkv, prepared + std::int64_t{before} * a.heads, rows, shared);
    }
  } else if (threadIdx.x < 256) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    chain(a, s, rows, shared);
  } else {
    results(a, rows, shared);
  }
}

// Chunks there can be: two more than whole ones for each long run.
int most_chunks(const BatchView& b) { return b.rows / kChunk + 2 * min(b.sequences, b.rows / (kStepRows + 1)); }

}  // namespace

std::size_t gated_delta_chunk_bytes(const GatedDeltaView& args) {
  return static_cast<std::size_t>(most_chunks(args.batch)) * args.heads * sizeof(Prepared);
}

void launch_gated_delta_chunk(const GatedDeltaView& args, void* scratch, Stream stream) {
  allow_shared<prepare_kernel, sizeof(FactorShared)>();
  allow_shared<walk_kernel, kWalkShared>();
  auto* prepared = static_cast<Prepared*>(scratch);
  const std::int64_t columns = (2 * std::int64_t{args.key_heads} + args.heads) * kDim;
  const TensorMap qkv = make_tensor_map(args.qkv, args.batch.rows, columns, kChunk);
  launch(prepare_kernel, dim3(static_cast<unsigned>(most_chunks(args.batch)), static_cast<unsigned>(args.key_heads)), 128,
         sizeof(FactorShared), stream, args, prepared);
  launch(walk_kernel, dim3(2, static_cast<unsigned>(args.heads), static_cast<unsigned>(args.batch.sequences)), 384, kWalkShared, stream, args,
         qkv, prepared);
}

}  // namespace strata::cuda
