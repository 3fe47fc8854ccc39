// Launches of route and combine.
#pragma once

#include "ops/cuda/views.h"

namespace strata {
struct RouteArgs;
}

namespace strata::cuda {

struct RouteView {
  const float* logits = nullptr;  // [rows, experts], logit_stride apart
  std::int64_t logit_stride = 0;
  const float* bias = nullptr;    // [experts] or null
  int* expert = nullptr;          // [rows, k]
  float* weight = nullptr;        // [rows, k]
  int* order = nullptr;           // [rows * k], or null: not sorted
  int* first = nullptr;           // [experts + 1], or null
  int* counts = nullptr;          // with order: scratch of route_counts() numbers
  int rows = 0, experts = 0, k = 0, groups = 1, top_groups = 1;
  int scoring = 0;                // as strata::Scoring
  bool normalise = true;
  float scale = 1;
  const float* expert_scale = nullptr;  // [experts] or null
};
constexpr int kRouteChunk = 512;  // entries that are sorted by one block
constexpr std::int64_t route_counts(std::int64_t entries, std::int64_t experts) { return (entries + kRouteChunk - 1) / kRouteChunk * experts; }
// Checks `args`; all but the outputs.
RouteView view_of(const RouteArgs& args, int k);
void launch_route(const RouteView& args, Stream stream);
// Fills expert, weight, order and first for k = experts: every row to all of them.
void launch_route_all(const RouteView& args, Stream stream);

struct CombineArgs {
  Rows out, y, shared, gate;      // shared and gate may be null
  const float* weight = nullptr;  // [rows, k]
  std::int64_t rows = 0, columns = 0;
  int k = 0;
  bool wide = false;
};
void launch_combine(const CombineArgs& args, Stream stream);

}  // namespace strata::cuda
