// The norm, the router's product and the choice for few rows. Every block normalises the rows for its few
// outputs; the last one to be done chooses, and adds to the residual stream, which all have read then.
#include "ops/cuda/device/choose.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/norm_rows.cuh"
#include "ops/cuda/router.h"

namespace strata::cuda {
namespace {

constexpr int outputs_each(int rows) {
  return rows <= 2 ? 2 : 4;
}  // of a block: what it reads of x grows with the rows

template <int R>
__global__ void __launch_bounds__(kNormWarps * 32) router_kernel(RouterArgs a) {
  constexpr int kOutputs = outputs_each(R);
  __shared__ float parts[kNormWarps][kOutputs * R];
  __shared__ ChooseShared<kRouterExperts / 32, R> choice;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = static_cast<int>(blockDim.x) / 32;
  const int column = static_cast<int>(threadIdx.x) * 8, rows = static_cast<int>(a.norm.rows),
            outputs = static_cast<int>(a.w.outputs), first = static_cast<int>(blockIdx.x) * kOutputs;
  const bool live = column < a.norm.columns;
  const Eight weight = norm_weight(a.norm, column);
  uint4 w[kOutputs] = {};
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    const std::int64_t at = min(first + o, outputs - 1) * a.w.data.stride + column;
    if (live) w[o] = *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.w.data.data) + at);
  }
  begin_kernel();
  NormRows<R> norm;
  norm.load(a.norm, column);
  float sum[kOutputs][R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const uint4 packed = norm.normed(r, weight);
    if (live && r < rows && r % gridDim.x == blockIdx.x)
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.norm.out.data) + r * a.norm.out.stride +
                                column) = packed;
    const Eight x = unpack8(packed);
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const Eight f = unpack8(w[o]);
      float part = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) part += x.v[i] * f.v[i];
      sum[o][r] = warp_sum(live ? part : 0.0F);
    }
  }
  if (lane == 0) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o)
#pragma unroll
      for (int r = 0; r < R; ++r) parts[warp][o * R + r] = sum[o][r];
  }
  __syncthreads();
  if (threadIdx.x < kOutputs * R) {
    const int o = static_cast<int>(threadIdx.x) / R, r = static_cast<int>(threadIdx.x) % R, n = first + o;
    if (r < rows && n < outputs) {
      float all = a.bias == nullptr ? 0.0F : a.bias[n];
#pragma unroll
      for (int i = 0; i < kNormWarps; ++i) all += i < warps ? parts[i][threadIdx.x] : 0.0F;
      a.routed[r * outputs + n] = all;
    }
  }
  if (!last_block(a.arrived)) return;
  if (live && a.norm.delta.data != nullptr) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r < rows) store8(a.norm.x, r, column, 8, true, norm.x[r]);
    }
  }
  for (int r = warp; r < rows; r += warps)
    choose<kRouterExperts / 32>(a.route, r, choice.choice[r], choice.totals[r], choice.weights[r],
                                choice.chosen[r]);
}

template <int R>
void start(const RouterArgs& a, Stream stream) {
  const int threads = ceil_div(a.norm.columns, 256) * 32;
  launch(router_kernel<R>, static_cast<unsigned>(ceil_div(a.w.outputs, std::int64_t{outputs_each(R)})),
         static_cast<unsigned>(threads), 0, stream, a);
}

}  // namespace

void launch_router(const RouterArgs& args, Stream stream) {
  if (args.norm.rows <= 1) return start<1>(args, stream);
  if (args.norm.rows <= 2) return start<2>(args, stream);
  args.norm.rows <= 4 ? start<4>(args, stream) : start<8>(args, stream);
}

}  // namespace strata::cuda
