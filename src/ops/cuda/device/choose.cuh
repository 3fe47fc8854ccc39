// The choice of a row's experts by one warp.
#pragma once

#include "ops/cuda/device/math.cuh"
#include "ops/cuda/route.h"

namespace strata::cuda {

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
inline __device__ void limit_groups(const RouteView& a, float* choice, float* totals) {
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

// A warp chooses the experts of one row; PerLane: experts of a lane. chosen [k] is left in shared memory.
template <int PerLane>
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

// Of `Warps` warps.
template <int PerLane, int Warps>
struct ChooseShared {
  float choice[Warps][PerLane * 32], totals[Warps][PerLane > 8 ? 256 : 128], weights[Warps][64];
  int chosen[Warps][64];
};

}  // namespace strata::cuda
