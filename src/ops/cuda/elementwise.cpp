// add, multiply, scale, activate and glu.
#include "ops/cuda/elementwise.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {
namespace {

cuda::ElementwiseArgs args_of(std::string_view op, const Tensor& x) {
  cuda::ElementwiseArgs args;
  args.rows = x.rows();
  args.columns = x.row_size();
  args.x = cuda::rows_of(op, "x", x, args.rows, args.columns);
  args.wide = cuda::wide(args.x, args.columns);
  return args;
}

}  // namespace

void CudaOps::add(Tensor x, Tensor delta, float scale) {
  cuda::ElementwiseArgs args = args_of("add", x);
  args.y = cuda::rows_of("add", "delta", delta, args.rows, args.columns);
  args.wide = args.wide && cuda::wide(args.y, args.columns);
  args.factor = scale;
  cuda::launch_add(args, stream_);
}

void CudaOps::multiply(Tensor x, Tensor y) {
  cuda::ElementwiseArgs args = args_of("multiply", x);
  args.one = y.row_size() == 1;
  args.y = cuda::rows_of("multiply", "y", y, args.rows, args.one ? 1 : args.columns);
  args.wide = args.wide && (args.one || cuda::wide(args.y, args.columns));
  cuda::launch_multiply(args, stream_);
}

void CudaOps::scale(Tensor x, float factor, float softcap) {
  cuda::ElementwiseArgs args = args_of("scale", x);
  args.factor = factor;
  args.limit = softcap;
  cuda::launch_scale(args, stream_);
}

void CudaOps::activate(Tensor x, Activation activation) {
  STRATA_CHECK(activation != Activation::kClampedSwiGlu, "activation {} is not of one argument", static_cast<int>(activation));
  cuda::ElementwiseArgs args = args_of("activate", x);
  args.activation = static_cast<int>(activation);
  cuda::launch_activate(args, stream_);
}

void CudaOps::glu(Tensor out, Tensor gate_up, Activation activation, float limit) {
  STRATA_CHECK(activation != Activation::kClampedSwiGlu || limit > 0, "glu: the clamped form needs a limit, has {}", limit);
  cuda::ElementwiseArgs args;
  args.rows = out.rows();
  args.columns = out.row_size();
  args.x = cuda::rows_of("glu", "gate_up", gate_up, args.rows, 2 * args.columns);
  args.out = cuda::rows_of("glu", "out", out, args.rows, args.columns);
  args.wide = cuda::wide(args.x, args.columns) && cuda::wide(args.out, args.columns);
  args.activation = static_cast<int>(activation);
  args.limit = limit;
  cuda::launch_glu(args, stream_);
}

}  // namespace strata
