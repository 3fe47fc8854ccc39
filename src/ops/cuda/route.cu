// route: a warp per row chooses its experts; then a block per expert lists the entries that chose it, in order.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/route.h"

namespace strata::cuda {
namespace {

constexpr int kMostExperts = 1024;
constexpr int kSigmoid = 1, kTopKSoftmax = 2;

// The best of the warp's (value, index) pairs; of equals the lower index.
__device__ __forceinline__ void warp_best(float& value, int& index) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v = __shfl_xor_sync(~0U, value, o);
    const int i = __shfl_xor_sync(~0U, index, o);
    if (v > value || (v == value && i < index)) value = v, index = i;
  }
}

// Leaves only the experts of the best groups in choice [experts] (shared memory); totals [groups].
__device__ void limit_groups(const RouteView& a, float* choice, float* totals) {
  const int lane = threadIdx.x % 32, size = a.experts / a.groups;
  for (int g = lane; g < a.groups; g += 32) {
    float best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float c = choice[e];
      if (c > best) {
        second = best;
        best = c;
      } else if (c > second) {
        second = c;
      }
    }
    totals[g] = size > 1 ? best + second : best;
  }
  __syncwarp();
  for (int kept = 0; kept < a.top_groups; ++kept) {
    float value = -INFINITY;
    int index = kMostExperts;
    for (int g = lane; g < a.groups; g += 32) {
      if (totals[g] > value) value = totals[g], index = g;
    }
    warp_best(value, index);
    if (lane == 0 && index < a.groups) totals[index] = -INFINITY;
    __syncwarp();
  }
  for (int e = lane; e < a.experts; e += 32) {
    if (totals[e / size] != -INFINITY) choice[e] = -INFINITY;
  }
  __syncwarp();
}

// A float as a number that orders like it; NaN as -inf.
__device__ __forceinline__ unsigned order_of(float x) {
  const unsigned bits = __float_as_uint(isnan(x) ? -INFINITY : x);
  return bits ^ (bits >> 31 != 0 ? ~0U : 0x80000000U);
}

template <int PerLane>  // experts of a lane
__device__ void choose(const RouteView& a, int row, float* choice, float* totals, float* weights, int* chosen) {
  const int lane = threadIdx.x % 32;
  const float* logits = a.logits + row * a.logit_stride;
  float score[PerLane];
  float top = -INFINITY;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    score[i] = lane + 32 * i < a.experts ? logits[lane + 32 * i] : -INFINITY;
    top = fmaxf(top, score[i]);
  }
  top = warp_max(top);
  if (a.scoring == kSigmoid) {
#pragma unroll
    for (int i = 0; i < PerLane; ++i) score[i] = 1.0F / (1.0F + expf(-score[i]));
  } else if (a.scoring != kTopKSoftmax) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      score[i] = expf(score[i] - top);
      sum += score[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < PerLane; ++i) score[i] /= sum;
  }
  float mine[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int e = lane + 32 * i;
    mine[i] = e < a.experts ? score[i] + (a.bias != nullptr ? a.bias[e] : 0.0F) : -INFINITY;
  }
  if (a.groups > 1) {
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      if (lane + 32 * i < a.experts) choice[lane + 32 * i] = mine[i];
    }
    __syncwarp();
    limit_groups(a, choice, totals);
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      if (lane + 32 * i < a.experts) mine[i] = choice[lane + 32 * i];
    }
  }
  unsigned key[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) key[i] = order_of(mine[i]);
  for (int j = 0; j < a.k; ++j) {
    unsigned best = 0;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) best = max(best, key[i]);
    best = __reduce_max_sync(~0U, best);
    unsigned index = kMostExperts;  // of equals the lower
#pragma unroll
    for (int i = PerLane - 1; i >= 0; --i) {
      if (key[i] == best) index = lane + 32 * i;
    }
    index = __reduce_min_sync(~0U, index);
    if (best <= order_of(-INFINITY)) index = 0;  // every score is NaN or -inf
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      if (lane + 32 * i == static_cast<int>(index)) {
        key[i] = 0;
        weights[j] = score[i];
        chosen[j] = static_cast<int>(index);
      }
    }
  }
  __syncwarp();
  float total = a.scoring == kSigmoid ? 1e-20F : 0.0F, most = -INFINITY;
  for (int j = 0; j < a.k; ++j) most = fmaxf(most, weights[j]);
  const auto weight_of = [&](int j) { return a.scoring == kTopKSoftmax ? expf(weights[j] - most) : weights[j]; };
  for (int j = 0; j < a.k; ++j) total += weight_of(j);
  const float factor = a.scoring == kTopKSoftmax || a.normalise ? a.scale / total : a.scale;
  for (int j = lane; j < a.k; j += 32) {
    a.expert[row * a.k + j] = chosen[j];
    a.weight[row * a.k + j] = weight_of(j) * (a.expert_scale != nullptr ? factor * a.expert_scale[chosen[j]] : factor);
  }
}

template <int PerLane, int Warps>
struct ChooseShared {
  float choice[Warps][PerLane * 32], totals[Warps][PerLane > 8 ? 256 : 128], weights[Warps][64];
  int chosen[Warps][64];
};

// A warp per row.
template <int PerLane, int Warps>
__global__ void __launch_bounds__(Warps * 32) choose_kernel(RouteView a) {
  begin_kernel();
  __shared__ ChooseShared<PerLane, Warps> s;
  const int warp = threadIdx.x / 32, row = blockIdx.x * Warps + warp;
  if (row < a.rows) choose<PerLane>(a, row, s.choice[warp], s.totals[warp], s.weights[warp], s.chosen[warp]);
}

// One block does it all for a few rows: chooses, and sorts the choices in shared memory.
constexpr int kFewRows = 32, kFewEntries = 512;
template <int PerLane>
__global__ void __launch_bounds__(512) few_kernel(RouteView a) {
  begin_kernel();
  __shared__ ChooseShared<PerLane, 16> s;
  __shared__ int expert[kFewEntries];
  const int warp = threadIdx.x / 32, entries = a.rows * a.k;
  for (int row = warp; row < a.rows; row += 16) {
    __syncwarp();
    choose<PerLane>(a, row, s.choice[warp], s.totals[warp], s.weights[warp], s.chosen[warp]);
    for (int j = threadIdx.x % 32; j < a.k; j += 32) expert[row * a.k + j] = s.chosen[warp][j];
  }
  __syncthreads();
  for (int e = threadIdx.x; e <= a.experts; e += 512) {
    int below = 0;
    for (int i = 0; i < entries; ++i) below += expert[i] < e;
    a.first[e] = below;
  }
  for (int i = threadIdx.x; i < entries; i += 512) {
    int place = 0;
    for (int j = 0; j < entries; ++j) place += expert[j] < expert[i] || (expert[j] == expert[i] && j < i);
    a.order[place] = i;
  }
}

// Block e lists the entries of expert e: entries of lower experts come before, equal ones stay in order. A thread takes four
// neighbours at a time.
__global__ void __launch_bounds__(256) sort_kernel(RouteView a) {
  begin_kernel();
  __shared__ int below_of[8], equal_of[8];
  const int e = blockIdx.x, entries = a.rows * a.k, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto four = [&](int i) {
    if (i + 4 <= entries) return *reinterpret_cast<const int4*>(a.expert + i);
    const auto one = [&](int j) { return j < entries ? a.expert[j] : a.experts; };
    return make_int4(one(i), one(i + 1), one(i + 2), one(i + 3));
  };
  int below = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * 4; i < entries; i += 1024) {
    const int4 q = four(i);
    below += (q.x < e) + (q.y < e) + (q.z < e) + (q.w < e);
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) below += __shfl_xor_sync(~0U, below, o);
  if (lane == 0) below_of[warp] = below;
  __syncthreads();
  below = 0;
  for (int w = 0; w < 8; ++w) below += below_of[w];
  if (threadIdx.x == 0) {
    a.first[e] = below;
    if (e == a.experts - 1) a.first[a.experts] = entries;
  }
  int at = below;
  for (int base = 0; base < entries; base += 1024) {
    const int i = base + static_cast<int>(threadIdx.x) * 4;
    const int4 q = i < entries ? four(i) : make_int4(a.experts, a.experts, a.experts, a.experts);
    const bool equal[4] = {q.x == e, q.y == e, q.z == e, q.w == e};
    const int own = equal[0] + equal[1] + equal[2] + equal[3];
    int sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int before = __shfl_up_sync(~0U, sum, o);
      if (lane >= o) sum += before;
    }
    if (lane == 31) equal_of[warp] = sum;
    __syncthreads();
    int place = at + sum - own, all = 0;
    for (int w = 0; w < 8; ++w) {
      place += w < warp ? equal_of[w] : 0;
      all += equal_of[w];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (equal[j]) a.order[place++] = i + j;
    }
    at += all;
    __syncthreads();
  }
}

// One thread for each entry (row, expert), and for each start.
__global__ void __launch_bounds__(256) all_kernel(RouteView a) {
  begin_kernel();
  const int i = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x);
  if (i <= a.experts) a.first[i] = i * a.rows;
  if (i >= a.rows * a.experts) return;
  a.expert[i] = i % a.experts;
  a.weight[i] = 1.0F;
  a.order[i] = i % a.rows * a.experts + i / a.rows;
}

}  // namespace

void launch_route_all(const RouteView& args, Stream stream) {
  const int threads = args.rows * args.experts > args.experts ? args.rows * args.experts : args.experts + 1;
  launch(all_kernel, static_cast<unsigned>((threads + 255) / 256), 256, 0, stream, args);
}

void launch_route(const RouteView& args, Stream stream) {
  if (args.rows == 0) return;
  const bool many = args.experts > 256 || args.groups > 128;
  if (args.order != nullptr && args.rows <= kFewRows && args.rows * args.k <= kFewEntries && !many) {
    launch(few_kernel<8>, 1, 512, 0, stream, args);
    return;
  }
  const auto blocks = static_cast<unsigned>(ceil_div(args.rows, many ? 2 : 8));
  many ? launch(choose_kernel<32, 2>, blocks, 64, 0, stream, args) : launch(choose_kernel<8, 8>, blocks, 256, 0, stream, args);
  if (args.order != nullptr) launch(sort_kernel, static_cast<unsigned>(args.experts), 256, 0, stream, args);
}

}  // namespace strata::cuda
