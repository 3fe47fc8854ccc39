// route and combine.
#include "ops/cuda/route.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {

namespace cuda {

RouteView view_of(const RouteArgs& args, int k) {
  constexpr std::int64_t kMostExperts = 1024;
  constexpr int kMostChoices = 64;
  const std::int64_t rows = args.logits.rows(), experts = args.logits.row_size();
  STRATA_CHECK(k >= 1 && k <= experts && k <= kMostChoices && experts <= kMostExperts, "route: {} of {} experts, at most {} of {}", k,
               experts, kMostChoices, kMostExperts);
  STRATA_CHECK(args.groups >= 1 && args.groups <= 256 && experts % args.groups == 0, "route: {} experts in {} groups", experts,
               args.groups);
  STRATA_CHECK(args.top_groups >= 1 && args.top_groups <= args.groups && k <= experts / args.groups * args.top_groups,
               "route: {} choices from {} of {} groups", k, args.top_groups, args.groups);
  STRATA_CHECK(args.logits.dtype() == DType::kF32, "route: logits of {}, expected f32", name(args.logits.dtype()));
  RouteView view;
  view.logits = static_cast<const float*>(rows_of("route", "logits", args.logits, rows, experts).data);
  view.logit_stride = args.logits.stride();
  view.bias = vector_of("route", "bias", args.bias, experts, true);
  view.rows = static_cast<int>(rows);
  view.experts = static_cast<int>(experts);
  view.k = k;
  view.groups = args.groups;
  view.top_groups = args.top_groups;
  view.scoring = static_cast<int>(args.scoring);
  view.normalise = args.normalise;
  view.scale = args.scale;
  view.expert_scale = vector_of("route", "expert_scale", args.expert_scale, experts, true);
  return view;
}

}  // namespace cuda

Routing CudaOps::route(const RouteArgs& args, int k) {
  cuda::RouteView view = cuda::view_of(args, k);
  const std::int64_t rows = view.rows;
  Routing routing{make({rows, k}, DType::kI32), make({rows, k}, DType::kF32), make({rows * k}, DType::kI32),
                  make({view.experts + 1}, DType::kI32)};
  view.expert = routing.expert.data<std::int32_t>();
  view.weight = routing.weight.data<float>();
  view.order = routing.order.data<std::int32_t>();
  view.first = routing.first.data<std::int32_t>();
  view.counts = make({cuda::route_counts(rows * k, view.experts)}, DType::kI32).data<std::int32_t>();
  cuda::launch_route(view, stream_);
  return routing;
}

Routing CudaOps::route_all(std::int64_t rows, std::int64_t experts) {
  Routing routing{make({rows, experts}, DType::kI32), make({rows, experts}, DType::kF32), make({rows * experts}, DType::kI32),
                  make({experts + 1}, DType::kI32)};
  cuda::RouteView view;
  view.expert = routing.expert.data<std::int32_t>();
  view.weight = routing.weight.data<float>();
  view.order = routing.order.data<std::int32_t>();
  view.first = routing.first.data<std::int32_t>();
  view.rows = static_cast<int>(rows);
  view.experts = view.k = static_cast<int>(experts);
  cuda::launch_route_all(view, stream_);
  return routing;
}

void CudaOps::combine(Tensor out, Tensor y, const Routing& routing, Tensor shared, Tensor gate) {
  const std::int64_t rows = out.rows(), width = out.row_size(), k = routing.weight.row_size();
  cuda::check_extent("combine", "rows of the routing", routing.weight.rows(), rows);
  cuda::CombineArgs args;
  args.rows = rows;
  args.columns = width;
  args.k = static_cast<int>(k);
  args.out = cuda::rows_of("combine", "out", out, rows, width);
  args.y = cuda::rows_of("combine", "y", y, rows * k, width);
  args.wide = cuda::wide(args.out, width) && cuda::wide(args.y, width);
  if (!shared.empty()) {
    args.shared = cuda::rows_of("combine", "shared", shared, rows, width);
    args.wide = args.wide && cuda::wide(args.shared, width);
    if (!gate.empty()) args.gate = cuda::rows_of("combine", "gate", gate, rows, 1);
  }
  args.weight = cuda::vector_of("combine", "weight", routing.weight, rows * k);
  cuda::launch_combine(args, stream_);
}

}  // namespace strata
