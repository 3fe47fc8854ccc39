// gated_delta row by row with key_dim 128, for decode and verify: the state is read once, stays in registers for all rows
// of the step (and those replayed from a tape), and is written once per save. See device/delta_step.cuh.
#include "ops/cuda/device/delta_step.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

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
  const float q_scale = rsqrtf(warp_sum(qq) + 1e-6F) * kQueryScale;
  const float k_scale = rsqrtf(warp_sum(kk) + 1e-6F);
  kq = warp_sum(kq) * q_scale * k_scale;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = key_place(lane * 4 + i);
    to.q[r][at] = q[i] * q_scale;
    to.k[r][at] = k[i] * k_scale;
  }
  if (lane == 0) {
    to.kq[r] = kq;
    to.decay[r] = expf(-expf(v.a_log[h]) * softplus(load(s.a, s.a_row, s.a_column + h) + v.dt_bias[h]));
    to.beta[r] = sigmoid(load(s.b, s.b_row, s.b_column + h));
  }
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
  for (int base = 0; base < total; base += kPreparedRows) {
    const int rows = min(kPreparedRows, total - base);
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
      const float out = advance(state, prepared, r, value, kk, vv);
      if (kk >= 4 && i >= run.replay) store(a.out, run.begin + i - run.replay, h * a.value_dim + v + kk - 4, out);
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
