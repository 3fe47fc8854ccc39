// gated_delta row by row with key_dim 128, for decode and verify: the state is read once, stays in registers for all rows
// of the step (and those replayed from a tape), and is written once per save. A warp owns 16 value columns: lane
// = 4 kk + vv holds rows kk, kk + 8, .. of four columns. With u = S^T k and w = S^T q of the state before the row,
//   d = beta (v - e^g u),  o = e^g w + (k . q) d,  S <- e^g S + k d^T
// needs one pass over the state and one reduction for both sums.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

constexpr int kKeys = 128;
constexpr int kColumns = 16;  // value columns of a warp
constexpr int kRows = 8;      // rows prepared together

struct Prepared {
  float k[kRows][kKeys];  // normalised, key kk + 8 i at kk * 16 + i
  float q[kRows][kKeys];  // and divided by sqrt(K)
  float kq[kRows], decay[kRows], beta[kRows];
};

// Where a row's inputs lie.
struct Source {
  Rows qkv, a, b;
  std::int64_t qkv_row, qkv_column, a_row, a_column, b_row, b_column;
};

__device__ __forceinline__ Source source_of(const GatedDeltaView& v, const Run& run, int i) {
  if (i >= run.replay) {
    const int row = run.begin + i - run.replay;
    return {v.qkv, v.a, v.b, row, 0, row, 0, row, 0};
  }
  const std::int64_t values = 2 * std::int64_t{v.key_heads} * kKeys + std::int64_t{v.heads} * v.value_dim;
  const std::int64_t column = i * (values + 2 * v.heads);
  return {v.tape, v.tape, v.tape, run.tape, column, run.tape, column + values, run.tape, column + values + v.heads};
}

// One warp prepares row r of the block's group.
__device__ __forceinline__ void prepare(const GatedDeltaView& v, const Source& s, int h, int r, Prepared& to) {
  const int lane = threadIdx.x % 32, key_head = h / (v.heads / v.key_heads);
  float q[4], k[4], qq = 0, kk = 0, kq = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    q[i] = load(s.qkv, s.qkv_row, s.qkv_column + key_head * kKeys + lane * 4 + i);
    k[i] = load(s.qkv, s.qkv_row, s.qkv_column + (v.key_heads + key_head) * kKeys + lane * 4 + i);
    qq += q[i] * q[i];
    kk += k[i] * k[i];
    kq += k[i] * q[i];
  }
  const float q_scale = rsqrtf(warp_sum(qq) + 1e-6F) * 0.08838834764831845F;  // 1 / sqrt(128)
  const float k_scale = rsqrtf(warp_sum(kk) + 1e-6F);
  kq = warp_sum(kq) * q_scale * k_scale;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = lane * 4 + i, at = key % 8 * 16 + key / 8;
    to.q[r][at] = q[i] * q_scale;
    to.k[r][at] = k[i] * k_scale;
  }
  if (lane == 0) {
    to.kq[r] = kq;
    to.decay[r] = expf(-expf(v.a_log[h]) * softplus(load(s.a, s.a_row, s.a_column + h) + v.dt_bias[h]));
    to.beta[r] = sigmoid(load(s.b, s.b_row, s.b_column + h));
  }
}

// Sums each of eight values over the eight lanes of a column group; lane kk keeps the sum of value kk.
__device__ __forceinline__ float reduce_scatter(const float (&x)[8], int kk) {
  float y[4], z[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float give = kk & 4 ? x[i] : x[i + 4], keep = kk & 4 ? x[i + 4] : x[i];
    y[i] = keep + __shfl_xor_sync(~0U, give, 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float give = kk & 2 ? y[i] : y[i + 2], keep = kk & 2 ? y[i + 2] : y[i];
    z[i] = keep + __shfl_xor_sync(~0U, give, 8);
  }
  const float give = kk & 1 ? z[0] : z[1], keep = kk & 1 ? z[1] : z[0];
  return keep + __shfl_xor_sync(~0U, give, 4);
}

__global__ void __launch_bounds__(256) step_kernel(GatedDeltaView a, int most_rows) {
  begin_kernel();
  __shared__ Prepared prepared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int kk = lane / 4, vv = lane % 4, h = blockIdx.y;
  const int v = (blockIdx.x * warps + warp) * kColumns + vv * 4;
  const bool live = v < a.value_dim;  // whole warps: value_dim is a multiple of 16
  Run run = run_of(a.batch, blockIdx.z);
  if (run.end - run.begin > most_rows) return;
  const auto place = [&](int slot) {
    return static_cast<float*>(a.state.data) + slot * a.state.stride + (std::int64_t{h} * kKeys + kk) * a.value_dim + v;
  };
  float4 state[16];
  if (run.state_in >= 0 && live) {
    const float* from = place(run.state_in);
#pragma unroll
    for (int i = 0; i < 16; ++i) state[i] = __ldcs(reinterpret_cast<const float4*>(from + i * 8 * a.value_dim));
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) state[i] = make_float4(0, 0, 0, 0);
  }
  const auto keep = [&](int slot) {
    if (!live) return;
    float* to = place(slot);
#pragma unroll
    for (int i = 0; i < 16; ++i) __stcs(reinterpret_cast<float4*>(to + i * 8 * a.value_dim), state[i]);
  };
  const int total = run.replay + run.end - run.begin;
  if (run.replay == 0 && run.state_out >= 0) keep(run.state_out);
  for (int base = 0; base < total; base += kRows) {
    const int rows = min(kRows, total - base);
    __syncthreads();
    for (int r = warp; r < rows; r += warps) prepare(a, source_of(a, run, base + r), h, r, prepared);
    __syncthreads();
    if (!live) continue;
    for (int r = 0; r < rows; ++r) {
      const int i = base + r;
      const Source source = source_of(a, run, i);
      // Lane kk < 4 of a column group finishes u of column v + kk, lane kk >= 4 w of column v + kk - 4.
      const float value =
          load(source.qkv, source.qkv_row, source.qkv_column + 2 * a.key_heads * kKeys + h * a.value_dim + v + kk % 4);
      float sums[8] = {};
      float k[16];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 k4 = *reinterpret_cast<const float4*>(&prepared.k[r][kk * 16 + j * 4]);
        const float4 q4 = *reinterpret_cast<const float4*>(&prepared.q[r][kk * 16 + j * 4]);
        const float q[4] = {q4.x, q4.y, q4.z, q4.w};
        k[j * 4] = k4.x, k[j * 4 + 1] = k4.y, k[j * 4 + 2] = k4.z, k[j * 4 + 3] = k4.w;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float4& s = state[j * 4 + e];
          sums[0] += s.x * k[j * 4 + e];
          sums[1] += s.y * k[j * 4 + e];
          sums[2] += s.z * k[j * 4 + e];
          sums[3] += s.w * k[j * 4 + e];
          sums[4] += s.x * q[e];
          sums[5] += s.y * q[e];
          sums[6] += s.z * q[e];
          sums[7] += s.w * q[e];
        }
      }
      const float decay = prepared.decay[r];
      const float mine = decay * reduce_scatter(sums, kk);
      const float d = prepared.beta[r] * (value - mine);  // meant where kk < 4
      const float d0 = __shfl_sync(~0U, d, vv), d1 = __shfl_sync(~0U, d, 4 + vv), d2 = __shfl_sync(~0U, d, 8 + vv),
                  d3 = __shfl_sync(~0U, d, 12 + vv);
      if (kk >= 4 && i >= run.replay) {
        const float dd = kk == 4 ? d0 : kk == 5 ? d1 : kk == 6 ? d2 : d3;
        store(a.out, run.begin + i - run.replay, h * a.value_dim + v + kk - 4, mine + prepared.kq[r] * dd);
      }
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        state[j].x = state[j].x * decay + k[j] * d0;
        state[j].y = state[j].y * decay + k[j] * d1;
        state[j].z = state[j].z * decay + k[j] * d2;
        state[j].w = state[j].w * decay + k[j] * d3;
      }
      if (i + 1 == run.replay && run.state_out >= 0) keep(run.state_out);
      if (i >= run.replay) run.save(run.begin + i - run.replay, keep);
    }
  }
}

}  // namespace

void launch_gated_delta_step(const GatedDeltaView& args, int most_rows, Stream stream) {
  // Blocks of 4 warps; smaller ones where they would not fill 132 processors.
  const int all = args.heads * args.batch.sequences * (args.value_dim / kColumns);
  const int warps = all >= 132 * 16 ? 4 : all >= 132 * 4 ? 2 : 1;
  launch(step_kernel,
         dim3(static_cast<unsigned>(ceil_div(args.value_dim / kColumns, warps)), static_cast<unsigned>(args.heads),
              static_cast<unsigned>(args.batch.sequences)),
         static_cast<unsigned>(warps * 32), 0, stream, args, most_rows);
}

}  // namespace strata::cuda
