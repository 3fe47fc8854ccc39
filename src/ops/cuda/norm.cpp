// rms_norm and add_rms_norm: Zhang and Sennrich 2019; gated_norm.
#include "ops/cuda/norm.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {

cuda::NormArgs cuda::norm_of(const AddNorm& norm) {
  const std::int64_t n = norm.x.row_size();
  NormArgs args;
  args.rows = norm.x.rows();
  args.columns = static_cast<int>(n);
  args.x = rows_of("rms_norm", "x", norm.x, args.rows, n);
  args.out = rows_of("rms_norm", "out", norm.out, args.rows, n);
  args.wide = cuda::wide(args.x, n) && cuda::wide(args.out, n);
  if (!norm.delta.empty()) {
    args.delta = rows_of("rms_norm", "delta", norm.delta, args.rows, n);
    args.wide = args.wide && cuda::wide(args.delta, n);
  }
  args.weight = vector_of("rms_norm", "weight", norm.weight, n, true);
  args.scale = norm.scale;
  args.eps = norm.eps;
  return args;
}

void CudaOps::rms_norm(Tensor out, Tensor x, Tensor weight, float eps) { add_rms_norm(out, x, {}, 1, weight, eps); }

void CudaOps::add_rms_norm(Tensor out, Tensor x, Tensor delta, float scale, Tensor weight, float eps) {
  cuda::launch_norm(cuda::norm_of({.out = out, .x = x, .delta = delta, .scale = scale, .weight = weight, .eps = eps}), stream_);
}

void CudaOps::gated_norm(const GatedNormArgs& a) {
  STRATA_CHECK(a.x.shape().rank() == 3, "gated_norm: x has rank {}, expected 3", a.x.shape().rank());
  const std::int64_t rows = a.x.rows(), heads = a.x[1], dim = a.x[2], channels = heads * dim;
  cuda::GatedNormView args;
  args.x = cuda::rows_of("gated_norm", "x", a.x, rows, channels);
  if (!a.gate.empty()) args.gate = cuda::rows_of("gated_norm", "gate", a.gate, rows, channels);
  args.out = cuda::rows_of("gated_norm", "out", a.out, rows, channels);
  args.period = static_cast<int>(a.weight.elements() == dim ? dim : channels);
  args.weight = cuda::vector_of("gated_norm", "weight", a.weight, args.period);
  args.group = static_cast<int>(a.group == 0 ? dim : a.group);
  STRATA_CHECK(dim % args.group == 0, "gated_norm: groups of {} in {} channels", args.group, dim);
  args.wide = cuda::wide(args.x, args.group) && (a.gate.empty() || cuda::wide(args.gate, args.group)) && cuda::wide(args.out, args.group);
  args.rows = rows;
  args.channels = static_cast<int>(channels);
  args.activation = static_cast<int>(a.activation);
  args.eps = a.eps;
  args.gate_first = a.gate_first;
  cuda::launch_gated_norm(args, stream_);
}

}  // namespace strata
