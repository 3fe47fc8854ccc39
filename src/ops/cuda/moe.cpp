// moe for few rows: a launch up to the choice, two after it; otherwise op by op, but that the norm makes the f8
// planes of its output.
#include "ops/cuda/moe.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/four_bit_pack.h"
#include "ops/cuda/op_checks.h"
#include "ops/cuda/router.h"
#include "ops/cuda/weight_view.h"

namespace strata {
namespace {

bool suits_few(const MoeArgs& a, std::int64_t rows) {
  if (rows > cuda::kMoeRows || rows * a.k > cuda::kMoeEntries) return false;
  const DType type = a.in->dtype;
  if (a.x.dtype() != DType::kBF16 || a.out.dtype() != DType::kBF16 ||
      (type != DType::kBF16 && type != DType::kF8E4M3 && !cuda::is_four_bit_type(type)))
    return false;
  if (type == DType::kF8E4M3 &&
      (cuda::moe_blocks(rows, a.x.row_size()) > cuda::kMoeBlocks ||
       cuda::moe_blocks(a.k, a.down->inputs(), a.shared_in != nullptr ? a.shared_down->inputs() : 0) >
           cuda::kMoeBlocks))
    return false;
  const auto suits = [&](const Weight& w) { return w.parts.empty() && w.dtype == type; };
  // Rows of hidden must be of 16-byte pieces, those of x are looked at below.
  const auto both = [&](const Weight& in, const Weight& down) {
    return suits(in) && suits(down) && down.inputs() % 8 == 0;
  };
  return both(*a.in, *a.down) && (a.shared_in == nullptr || both(*a.shared_in, *a.shared_down));
}

}  // namespace

// The norm, the router's product and the choice as one launch, where they suit it.
bool CudaOps::route_at_once(const MoeArgs& a, const cuda::RouteView& route) {
  if (a.router == nullptr || a.norm.x.empty() || a.norm.x.rows() > cuda::kRouterRows ||
      !a.router->parts.empty())
    return false;
  cuda::RouterArgs args;
  args.norm = cuda::norm_of(a.norm);
  const std::int64_t rows = args.norm.rows, D = args.norm.columns, outputs = a.router->outputs();
  if (!args.norm.wide || D > cuda::kRouterColumns || a.norm.x.dtype() != DType::kF32 ||
      a.norm.out.dtype() != DType::kBF16 || (!a.norm.delta.empty() && a.norm.delta.dtype() != DType::kBF16) ||
      a.router->dtype != DType::kBF16 || route.experts > cuda::kRouterExperts ||
      route.groups > cuda::kRouterGroups || !a.routed.contiguous())
    return false;
  STRATA_CHECK(a.norm.out.raw() == a.x.raw(), "moe: a norm of something else than x");
  args.w = cuda::weight_of("moe", *a.router);
  cuda::check_extent("moe", "inputs of the router", args.w.inputs, D);
  args.bias = cuda::vector_of("moe", "router_bias", a.router_bias, outputs, true);
  args.routed = static_cast<float*>(cuda::rows_of("moe", "routed", a.routed, rows, outputs).data);
  args.route = route;
  args.arrived = reinterpret_cast<unsigned*>(arrived_.data());
  cuda::launch_router(args, stream_);
  return true;
}

void CudaOps::moe(const MoeArgs& a) {
  const std::int64_t rows = a.x.rows(), D = a.x.row_size(), E = a.route.logits.row_size(),
                     F = a.down->inputs();
  if (rows == 0) return;
  if (!suits_few(a, rows) || !cuda::wide(cuda::rows_of("moe", "x", a.x, rows, D), D)) {
    if (a.in->dtype != DType::kF8E4M3) return Ops::moe(a);
    MoeArgs normed = a;
    normed.norm = {};
    const NormInPlanes planes(*this, a.norm);  // serves the shared expert too
    return Ops::moe(normed);
  }
  const Scratch scratch(arena());
  cuda::MoeView view;
  view.out = cuda::rows_of("moe", "out", a.out, rows, D);
  view.x = cuda::rows_of("moe", "x", a.x, rows, D);
  const auto matrix = [&](std::string_view what, const Weight& w, std::int64_t experts, std::int64_t outputs,
                          std::int64_t inputs) {
    STRATA_CHECK(w.experts() == experts && w.outputs() == outputs && w.inputs() == inputs,
                 "moe: {} {}, expected [{}, {}, {}]", what, w.shape.to_string(), experts, outputs, inputs);
    return cuda::weight_of("moe", w);
  };
  view.in = matrix("in", *a.in, E, 2 * F, D);
  view.down = matrix("down", *a.down, E, D, F);
  view.in_bias = cuda::vector_of("moe", "in_bias", a.in_bias, E * 2 * F, true);
  view.down_bias = cuda::vector_of("moe", "down_bias", a.down_bias, E * D, true);
  view.hidden = cuda::rows_of("moe", "hidden", make({rows * a.k, F}), rows * a.k, F);
  if (a.shared_in != nullptr) {
    const std::int64_t Fs = a.shared_down->inputs();
    view.shared_in = matrix("shared_in", *a.shared_in, 0, 2 * Fs, D);
    view.shared_down = matrix("shared_down", *a.shared_down, 0, D, Fs);
    view.shared_in_bias = cuda::vector_of("moe", "shared_in_bias", a.shared_in_bias, 2 * Fs, true);
    view.shared_down_bias = cuda::vector_of("moe", "shared_down_bias", a.shared_down_bias, D, true);
    view.shared_hidden = cuda::rows_of("moe", "shared_hidden", make({rows, Fs}), rows, Fs);
    if (!a.shared_gate.empty())
      view.shared_gate = cuda::rows_of("moe", "shared_gate", a.shared_gate, rows, 1);
  }
  view.route = cuda::view_of(a.route, a.k);
  view.route.expert = make({rows, a.k}, DType::kI32).data<std::int32_t>();
  view.route.weight = make({rows, a.k}, DType::kF32).data<float>();
  if (!route_at_once(a, view.route)) {
    normalise(a.norm);
    if (a.router != nullptr) linear(a.routed, a.x, *a.router, a.router_bias);
    cuda::launch_route(view.route, stream_);
  }
  view.processors = processors_;
  view.activation = static_cast<int>(a.activation);
  view.limit = a.limit;
  cuda::launch_moe_few(view, stream_);
}

}  // namespace strata
