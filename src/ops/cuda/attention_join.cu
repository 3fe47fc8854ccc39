// Joins what the blocks of split contexts (attention_tiles.cu) left.
#include "ops/cuda/attention.h"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"

namespace strata::cuda {
namespace {

// A block per row and head joins the splits: a thread takes four channels of every kJoinThreads / (value_dim / 4)-th split, and
// the threads of the same channels add up in a fixed order.
constexpr int kJoinThreads = 256;
__global__ void __launch_bounds__(kJoinThreads) join_kernel(AttentionView a) {
  constexpr int kAhead = 8;  // loads of a thread under way at once
  __shared__ float weights[kMostAttentionSplits];
  __shared__ float4 sums[kJoinThreads];
  begin_kernel();
  const std::int64_t item = blockIdx.x, items = std::int64_t{a.batch.rows} * a.heads;
  const int lanes = a.value_dim / 4, groups = kJoinThreads / lanes, first = threadIdx.x / lanes, c = threadIdx.x % lanes * 4;
  float4 ahead[kAhead];
  const auto load_from = [&](int s) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i, s += groups) {
      if (s < a.splits) ahead[i] = *reinterpret_cast<const float4*>(a.partial + (s * items + item) * a.value_dim + c);
    }
  };
  load_from(first);
  if (threadIdx.x < 32) {
    float2 scale[kMostAttentionSplits / 32];
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kMostAttentionSplits / 32; ++i) {
      const int s = threadIdx.x + 32 * i;
      scale[i] = s < a.splits ? a.partial_scale[s * items + item] : make_float2(-INFINITY, 0);
      most = fmaxf(most, scale[i].x);
    }
    most = warp_max(most);
    const float base = most == -INFINITY ? 0.0F : most;
#pragma unroll
    for (int i = 0; i < kMostAttentionSplits / 32; ++i) {
      scale[i].x = exp2f(scale[i].x - base);
      sum += scale[i].x * scale[i].y;
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kMostAttentionSplits / 32; ++i) weights[threadIdx.x + 32 * i] = sum > 0 ? scale[i].x / sum : 0.0F;
  }
  __syncthreads();
  float4 all = make_float4(0, 0, 0, 0);
  const auto add = [](float4& to, const float4& x, float weight) {
    to.x += x.x * weight, to.y += x.y * weight, to.z += x.z * weight, to.w += x.w * weight;
  };
  for (int s = first; s < a.splits; s += kAhead * groups) {
    if (s != first) load_from(s);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (s + i * groups < a.splits) add(all, ahead[i], weights[s + i * groups]);
    }
  }
  sums[threadIdx.x] = all;
  __syncthreads();
  if (threadIdx.x >= lanes) return;
  for (int g = 1; g < groups; ++g) add(all, sums[g * lanes + threadIdx.x], 1);
  const std::int64_t row = item / a.heads;
  const int column = static_cast<int>(item % a.heads) * a.value_dim + c;
  const float x[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float gate = a.gate.data != nullptr ? sigmoid(load(a.gate, row, column + i)) : 1.0F;
    store(a.out, row, column + i, x[i] * gate);
  }
}

}  // namespace

void launch_attention_join(const AttentionView& args, Stream stream) {
  launch(join_kernel, static_cast<unsigned>(args.batch.rows * args.heads), kJoinThreads, 0, stream, args);
}

}  // namespace strata::cuda
