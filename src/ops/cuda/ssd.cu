// ssd: Mamba-2's recurrence row by row. A warp owns four rows p of a head's state [P, N], its lanes the columns n.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 4;  // rows p of a warp

template <int PerLane>  // columns of a lane: 32 * PerLane >= N
__global__ void __launch_bounds__(kWarps * 32) ssd_kernel(SsdView a) {
  begin_kernel();
  const int lane = threadIdx.x % 32, h = blockIdx.y, group = h / (a.heads / a.groups);
  const int p0 = (blockIdx.x * kWarps + threadIdx.x / 32) * kRows;
  if (p0 >= a.head_dim) return;
  Run run = run_of(a.batch, blockIdx.z);
  const auto at = [&](int r, int j) {
    return (std::int64_t{h} * a.head_dim + p0 + r) * a.state_dim + lane + 32 * j;
  };
  const auto live = [&](int r, int j) { return p0 + r < a.head_dim && lane + 32 * j < a.state_dim; };
  float state[kRows][PerLane];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int j = 0; j < PerLane; ++j) state[r][j] = run.state_in >= 0 && live(r, j) ? load(a.state, run.state_in, at(r, j)) : 0.0F;
  }
  const auto keep = [&](int slot) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < PerLane; ++j) {
        if (live(r, j)) store(a.state, slot, at(r, j), state[r][j]);
      }
    }
  };
  const float rate = -expf(a.a_log[h]), shift = a.dt_bias[h], skip = a.d[h];
  const std::int64_t width = std::int64_t{a.heads} * a.head_dim + 2 * std::int64_t{a.groups} * a.state_dim;
  const auto advance = [&](const Rows& xbc, std::int64_t row, std::int64_t column, float dt, bool out) {
    dt = fmaxf(softplus(dt + shift), a.dt_min);
    if (a.dt_max > 0) dt = fminf(dt, a.dt_max);
    const float decay = expf(rate * dt);
    const std::int64_t b_at = column + std::int64_t{a.heads} * a.head_dim + group * a.state_dim,
                       c_at = b_at + std::int64_t{a.groups} * a.state_dim;
    float b[PerLane], c[PerLane];
#pragma unroll
    for (int j = 0; j < PerLane; ++j) {
      const bool inside = lane + 32 * j < a.state_dim;
      b[j] = inside ? load(xbc, row, b_at + lane + 32 * j) : 0.0F;
      c[j] = inside ? load(xbc, row, c_at + lane + 32 * j) : 0.0F;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float x = p0 + r < a.head_dim ? load(xbc, row, column + h * a.head_dim + p0 + r) : 0.0F;
      const float in = dt * x;
      float y = 0;
#pragma unroll
      for (int j = 0; j < PerLane; ++j) {
        state[r][j] = state[r][j] * decay + in * b[j];
        y += state[r][j] * c[j];
      }
      if (!out) continue;
      y = warp_sum(y);
      if (lane == 0 && p0 + r < a.head_dim) store(a.out, row, h * a.head_dim + p0 + r, y + skip * x);
    }
  };
  for (int i = 0; i < run.replay; ++i) {
    const std::int64_t column = i * (width + a.heads);
    advance(a.tape, run.tape, column, load(a.tape, run.tape, column + width + h), false);
  }
  if (run.state_out >= 0) keep(run.state_out);
  for (int row = run.begin; row < run.end; ++row) {
    advance(a.xbc, row, 0, load(a.dt, row, h), true);
    run.save(row, keep);
  }
}

}  // namespace

void launch_ssd(const SsdView& args, Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(args.head_dim, kWarps * kRows)), static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(args.batch.sequences));
  const auto kernel = args.state_dim <= 32 ? ssd_kernel<1> : args.state_dim <= 128 ? ssd_kernel<4> : ssd_kernel<8>;
  launch(kernel, grid, kWarps * 32, 0, stream, args);
}

}  // namespace strata::cuda
