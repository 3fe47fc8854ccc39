// gated_delta row by row with key_dim 128, for decode and verify: the state is read once, stays in registers for all rows
// of the step (and those replayed from a tape), and is written once per save. See device/delta_step.cuh.
//
// States and the batch were written at least two kernels ago (device/launch.cuh; what makes q, k and v lies
// between), so the states are asked for before the wait for the kernel before.
#include "ops/cuda/device/delta_step.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

template <int Warps>
struct Block {
  static constexpr int kValues = kColumns * Warps;
  Prepared prepared;
  alignas(16) float value[kPreparedRows][kValues];
};

// Where a row's inputs lie.
struct Source {
  Rows qkv, a, b;
  std::int64_t row, qkv_column, a_column, b_column;
  bool wide;
};

__device__ __forceinline__ Source source_of(const GatedDeltaView& v, const Run& run, int i) {
  if (i >= run.replay) return {v.qkv, v.a, v.b, run.begin + i - run.replay, 0, 0, 0, v.wide};
  const std::int64_t values = 2 * std::int64_t{v.key_heads} * kKeys + std::int64_t{v.heads} * v.value_dim;
  const std::int64_t column = i * (values + 2 * v.heads);
  return {v.tape, v.tape, v.tape, run.tape, column, column + values, column + values + v.heads, v.tape_wide};
}

template <int Warps>
__global__ void __launch_bounds__(32 * Warps, 16 / Warps) step_kernel(GatedDeltaView a, int most_rows) {
  using B = Block<Warps>;
  __shared__ B block;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kk = lane / 4, vv = lane % 4, h = blockIdx.y;
  const int first = blockIdx.x * B::kValues, column = warp * kColumns + vv * 4, v = first + column;
  const bool live = v < a.value_dim;
  Run run = start_of(a.batch, blockIdx.z);
  const int total = run.replay + run.end - run.begin;
  if (run.end - run.begin > most_rows) return begin_kernel();

  const auto place = [&](int slot) {
    return static_cast<float*>(a.state.data) + slot * a.state.stride + (std::int64_t{h} * kKeys + kk) * a.value_dim + v;
  };
  float4 state[16];
  if (run.state_in >= 0 && live) {
    const float* from = place(run.state_in);
#pragma unroll
    for (int i = 0; i < 16; ++i) state[i] = *reinterpret_cast<const float4*>(from + i * 8 * a.value_dim);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) state[i] = make_float4(0, 0, 0, 0);
  }
  const auto keep = [&](int slot) {
    if (!live) return;
    float* to = place(slot);
#pragma unroll
    for (int i = 0; i < 16; ++i) *reinterpret_cast<float4*>(to + i * 8 * a.value_dim) = state[i];
  };
  run.saves = a.batch.saves + 2 * saves_before_by_warp(a.batch, run.begin);
  const float rate = expf(a.a_log[h]), dt_bias = a.dt_bias[h];
  const int key_head = h / (a.heads / a.key_heads);
  begin_kernel();

  // Eight channels of row i, of q and k by the lanes of a warp or of v, as row r of the block's group.
  const auto prepare = [&](int i, int r) {
    const Source s = source_of(a, run, i);
    const bool odd = lane % 2 != 0;
    const float gate = load(odd ? s.b : s.a, s.row, (odd ? s.b_column : s.a_column) + h);
    const int head = lane < 16 ? key_head : a.key_heads + key_head;
    const Eight x = load8(s.qkv, s.row, s.qkv_column + head * kKeys + lane % 16 * 8, 8, s.wide);
    prepare_row(block.prepared, r, x, __shfl_sync(~0U, gate, 0), __shfl_sync(~0U, gate, 1), rate, dt_bias);
  };
  const auto take_value = [&](int i, int r, int c) {
    if (first + c >= a.value_dim) return;
    const Source s = source_of(a, run, i);
    const Eight x = load8(s.qkv, s.row, s.qkv_column + 2 * a.key_heads * kKeys + h * a.value_dim + first + c, 8, s.wide);
    float4* to = reinterpret_cast<float4*>(&block.value[r][c]);
    to[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    to[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
  };

  if (run.replay == 0 && run.state_out >= 0) keep(run.state_out);
  for (int base = 0; base < total; base += kPreparedRows) {
    const int rows = min(kPreparedRows, total - base);
    constexpr int kOctets = B::kValues / 8;
    const int tasks = rows + ceil_div(rows * kOctets, 32);
    if (base > 0) __syncthreads();
    for (int task = warp; task < tasks; task += Warps) {
      if (task < rows) {
        prepare(base + task, task);
      } else {
        const int at = (task - rows) * 32 + lane, r = at / kOctets;
        if (r < rows) take_value(base + r, r, at % kOctets * 8);
      }
    }
    __syncthreads();
    for (int r = 0; r < rows; ++r) {
      const int i = base + r;
      const float out = advance(state, block.prepared, r, block.value[r][column + kk % 4], kk, vv);
      if (kk >= 4 && live && i >= run.replay)
        store(a.out, run.begin + i - run.replay, h * a.value_dim + v + kk - 4, out);
      if (i + 1 == run.replay && run.state_out >= 0) keep(run.state_out);
      if (i >= run.replay) run.save(run.begin + i - run.replay, keep);
    }
  }
}

template <int Warps>
void start(const GatedDeltaView& args, int most_rows, Stream stream) {
  launch(step_kernel<Warps>,
         dim3(static_cast<unsigned>(ceil_div(args.value_dim, Block<Warps>::kValues)), static_cast<unsigned>(args.heads),
              static_cast<unsigned>(args.batch.sequences)),
         static_cast<unsigned>(32 * Warps), 0, stream, args, most_rows);
}

}  // namespace

void launch_gated_delta_step(const GatedDeltaView& args, int most_rows, Stream stream) {
  // Blocks of 4 warps; smaller ones where they would not fill 132 processors.
  const int all = args.heads * args.batch.sequences * ceil_div(args.value_dim, kColumns);
  return all >= 132 * 16 ? start<4>(args, most_rows, stream)
         : all >= 132 * 4 ? start<2>(args, most_rows, stream)
                          : start<1>(args, most_rows, stream);
}

}  // namespace strata::cuda
