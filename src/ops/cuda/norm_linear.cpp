// norm_linear, and norms that make what the products after them take.
#include "ops/cuda/linear.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {

CudaOps::NormInPlanes::NormInPlanes(CudaOps& ops, const AddNorm& norm) : ops_(ops), scratch_(ops.arena()) {
  if (norm.x.empty()) return;
  cuda::NormArgs args = cuda::norm_of(norm);
  const std::int64_t n = args.columns;
  if (args.wide && n % 128 == 0 && n <= cuda::kPlaneColumns && norm.out.dtype() == DType::kBF16) {
    args.count = ops.options_.f8_activations ? 1 : 2;
    ops.planes_ = {norm.out.raw(), ops.make({args.rows, args.count * n}, DType::kF8E4M3), ops.make({args.rows}, DType::kF32)};
    args.planes = reinterpret_cast<std::uint8_t*>(ops.planes_.planes.raw());
    args.scales = ops.planes_.scales.data<float>();
  }
  cuda::launch_norm(args, ops.stream_);
}

void CudaOps::norm_linear(Tensor out, const AddNorm& norm, const Weight& w, Tensor bias) {
  const Weight& first = w.parts.empty() ? w : w.parts[0];
  if (norm.out.rows() <= cuda::kStreamRows || first.dtype != DType::kF8E4M3) return Ops::norm_linear(out, norm, w, bias);
  const NormInPlanes normed(*this, norm);
  linear(out, norm.out, w, bias);
}

}  // namespace strata
