// norm_linear, and norms that make what the products after them take.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/op_checks.h"

namespace strata {

CudaOps::NormInPlanes::NormInPlanes(CudaOps& ops, const AddNorm& norm) : ops_(ops), scratch_(ops.arena()) {
  if (norm.x.empty()) return;
  cuda::NormArgs args = cuda::norm_of(norm);
  const std::int64_t n = args.columns;
  if (args.wide && n % 128 == 0 && n <= cuda::kPlaneColumns && norm.out.dtype() == DType::kBF16) {
    args.count = ops.options_.f8_activations ? 1 : 2;
    ops.planes_ = {norm.out.raw(), ops.make({args.rows, args.count * n}, DType::kF8E4M3),
                   ops.make({args.rows}, DType::kF32)};
    args.planes = reinterpret_cast<std::uint8_t*>(ops.planes_.planes.raw());
    args.scales = ops.planes_.scales.data<float>();
  }
  cuda::launch_norm(args, ops.stream_);
}

void CudaOps::norm_linear(Tensor out, const AddNorm& norm, const Weight& w, Tensor bias) {
  const std::int64_t rows = norm.out.rows();
  const bool stacked = w.parts.size() == 2 && w.parts[1].dtype == DType::kBF16;
  const Weight& first = w.parts.empty() ? w : w.parts[0];
  if (rows > cuda::kStreamRows && first.dtype == DType::kF8E4M3) {
    const NormInPlanes normed(*this, norm);
    return linear(out, norm.out, w, bias);
  }
  const bool suits = rows > 0 && rows <= cuda::kNormLinearRows &&
                     norm.out.row_size() <= cuda::kNormLinearColumns && !norm.x.empty() &&
                     norm.x.dtype() == DType::kF32 && norm.out.dtype() == DType::kBF16 &&
                     (norm.delta.empty() || norm.delta.dtype() == DType::kBF16) && w.shape.rank() == 2 &&
                     (first.dtype == DType::kF8E4M3 ? w.parts.empty() || stacked
                                                    : first.dtype == DType::kBF16 && w.parts.empty());
  cuda::NormLinearArgs args;
  if (suits) args.norm = cuda::norm_of(norm);
  if (!args.norm.wide) return Ops::norm_linear(out, norm, w, bias);
  cuda::check_extent("norm_linear", "outputs", out.row_size(), w.outputs());
  const auto part = [&](std::int64_t at, const Weight& of) {
    const std::int64_t n = of.outputs();
    return arguments("norm_linear", out.columns(at, n), norm.out, of,
                     bias.empty() ? bias : bias.rows_from(at, n), nullptr, rows);
  };
  args.w = part(0, first);
  if (stacked) args.below = part(first.outputs(), w.parts[1]);
  args.arrived = reinterpret_cast<unsigned*>(arrived_.data());
  cuda::launch_norm_linear(args, stream_);
}

}  // namespace strata
