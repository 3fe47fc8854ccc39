// What a mixture of few rows does before its experts, in one launch: add_rms_norm, the router's product, the
// choice.
#pragma once

#include "ops/cuda/norm.h"
#include "ops/cuda/route.h"

namespace strata::cuda {

constexpr int kRouterRows = 8, kRouterColumns = 4096, kRouterExperts = 256, kRouterGroups = 128;  // at most

struct RouterArgs {
  NormArgs norm;                // x f32, delta and out bf16, `wide`
  WeightView w;                 // bf16 [outputs, columns]
  const float* bias = nullptr;  // [outputs] or null
  float* routed = nullptr;      // [rows, outputs]
  RouteView route;              // of columns of `routed`, without order and first
  unsigned* arrived = nullptr;  // zero before and after
};
void launch_router(const RouterArgs& args, Stream stream);

}  // namespace strata::cuda
