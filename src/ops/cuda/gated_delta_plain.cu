// gated_delta for any sizes: a warp per head and 32 value columns of a sequence, the state in shared memory, row by row.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

__global__ void __launch_bounds__(32) plain_kernel(GatedDeltaView a) {
  begin_kernel();
  extern __shared__ float shared[];
  const int keys = a.key_dim, lane = threadIdx.x, h = blockIdx.y, key_head = h / (a.heads / a.key_heads);
  const int v = blockIdx.x * 32 + lane;
  const bool live = v < a.value_dim;
  float* state = shared;                 // [K, 32]
  float *q = shared + keys * 32, *k = q + keys;
  Run run = run_of(a.batch, blockIdx.z);
  const auto at = [&](int i) { return (std::int64_t{h} * keys + i) * a.value_dim + v; };
  for (int i = 0; i < keys; ++i) state[i * 32 + lane] = run.state_in >= 0 && live ? load(a.state, run.state_in, at(i)) : 0.0F;
  const auto keep = [&](int slot) {
    if (!live) return;
    for (int i = 0; i < keys; ++i) store(a.state, slot, at(i), state[i * 32 + lane]);
  };
  const float rate = -expf(a.a_log[h]), shift = a.dt_bias[h], root = rsqrtf(static_cast<float>(keys));
  const auto normalise = [&](float* to, const Rows& from, std::int64_t row, std::int64_t column, float scale) {
    float sum = 0;
    for (int i = lane; i < keys; i += 32) {
      to[i] = load(from, row, column + i);
      sum += to[i] * to[i];
    }
    const float factor = scale * rsqrtf(warp_sum(sum) + 1e-6F);
    for (int i = lane; i < keys; i += 32) to[i] *= factor;
  };
  // The inputs lie in `qkv` from `column` on; a and b are given.
  const auto advance = [&](const Rows& qkv, std::int64_t row, std::int64_t column, float a_in, float b_in) {
    __syncwarp();
    normalise(q, qkv, row, column + key_head * keys, root);
    normalise(k, qkv, row, column + (a.key_heads + key_head) * keys, 1);
    __syncwarp();
    const float value = live ? load(qkv, row, column + 2 * a.key_heads * keys + h * a.value_dim + v) : 0.0F;
    const float decay = expf(rate * softplus(a_in + shift)), beta = sigmoid(b_in);
    float known = 0, out = 0;
    for (int i = 0; i < keys; ++i) known += state[i * 32 + lane] * decay * k[i];
    const float delta = beta * (value - known);
    for (int i = 0; i < keys; ++i) {
      const float cell = state[i * 32 + lane] * decay + k[i] * delta;
      state[i * 32 + lane] = cell;
      out += cell * q[i];
    }
    return out;
  };
  const std::int64_t values = 2 * std::int64_t{a.key_heads} * keys + std::int64_t{a.heads} * a.value_dim, width = values + 2 * a.heads;
  for (int i = 0; i < run.replay; ++i) {
    const std::int64_t column = i * width;
    advance(a.tape, run.tape, column, load(a.tape, run.tape, column + values + h),
            load(a.tape, run.tape, column + values + a.heads + h));
  }
  if (run.state_out >= 0) keep(run.state_out);
  for (int row = run.begin; row < run.end; ++row) {
    const float out = advance(a.qkv, row, 0, load(a.a, row, h), load(a.b, row, h));
    if (live) store(a.out, row, h * a.value_dim + v, out);
    run.save(row, keep);
  }
}

}  // namespace

void launch_gated_delta_plain(const GatedDeltaView& args, Stream stream) {
  const std::size_t shared = static_cast<std::size_t>(args.key_dim) * 34 * sizeof(float);
  launch(plain_kernel,
         dim3(static_cast<unsigned>(ceil_div(args.value_dim, 32)), static_cast<unsigned>(args.heads),
              static_cast<unsigned>(args.batch.sequences)),
         32, shared, stream, args);
}

}  // namespace strata::cuda
