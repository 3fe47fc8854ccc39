// linear and expert_linear: checks, and the choice of a kernel by element types and number of rows.
#include "ops/cuda/linear.h"

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"
#include "ops/cuda/weight_view.h"

namespace strata {
namespace {

void run(cuda::LinearArgs& args, cuda::Stream stream) {
  if (args.rows == 0) return;
  args.wide = cuda::wide(args.x, args.w.inputs);
  const bool tensor_cores =
      args.x.elem == cuda::kElemBF16 && (args.w.data.elem == cuda::kElemBF16 || args.w.data.elem == cuda::kElemF8);
  // The stream kernel reads weights as fast as memory gives them for up to 16 rows; of experts it wastes time on finding
  // their few rows, unless there are very few.
  if (tensor_cores && args.wide && args.rows > 16) {
    cuda::launch_linear_tiles(args, stream);
  } else if (tensor_cores) {
    cuda::launch_linear_stream(args, stream);
  } else {
    cuda::launch_linear_plain(args, stream);
  }
}

}  // namespace

void CudaOps::linear(Tensor out, Tensor x, const Weight& w, Tensor bias) {
  STRATA_CHECK(w.shape.rank() == 2, "linear: weight {} is not a matrix", w.shape.to_string());
  cuda::LinearArgs args;
  args.w = cuda::weight_of("linear", w);
  args.rows = x.rows();
  args.x = cuda::rows_of("linear", "x", x, args.rows, args.w.inputs);
  args.out = cuda::rows_of("linear", "out", out, args.rows, args.w.outputs);
  args.bias = cuda::vector_of("linear", "bias", bias, args.w.outputs, true);
  args.processors = processors_;
  run(args, stream_);
}

void CudaOps::expert_linear(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias) {
  const std::int64_t experts = w.experts(), rows = routing.expert.rows(), entries = routing.order.elements();
  STRATA_CHECK(experts > 0, "expert_linear: weight {} has no experts", w.shape.to_string());
  cuda::check_extent("expert_linear", "experts of the routing", routing.first.elements() - 1, experts);
  STRATA_CHECK(x.rows() == rows || x.rows() == entries, "expert_linear: rows of x {}, routing {} or {}", x.rows(), rows, entries);
  cuda::LinearArgs args;
  args.w = cuda::weight_of("expert_linear", w);
  args.rows = entries;
  args.x = cuda::rows_of("expert_linear", "x", x, x.rows(), args.w.inputs);
  args.out = cuda::rows_of("expert_linear", "out", out, entries, args.w.outputs);
  args.bias = cuda::vector_of("expert_linear", "bias", bias, experts * args.w.outputs, true);
  args.order = cuda::ints_of("expert_linear", "order", routing.order);
  args.first = cuda::ints_of("expert_linear", "first", routing.first);
  args.divisor = x.rows() == entries ? 1 : static_cast<int>(routing.expert.row_size());
  args.longest = static_cast<int>(rows);
  args.processors = processors_;
  run(args, stream_);
}

}  // namespace strata
