// gated_norm: RMS norm of groups of channels with a gate, before (Mamba-2) or after it (Gated DeltaNet).
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/simd_rows.h"
#include "ops/cpu/worker_scratch.h"

namespace strata {
namespace {

// One group of n channels. `gated` [n] is scratch.
void norm_group_simd(const GatedNormArgs& args, float* out, const float* x, const float* gate,
                     const float* weight, std::int64_t n, float* gated) {
  if (gate == nullptr) {
    const float mean = simd::sum_of_squares(x, n) / static_cast<float>(n);
    return simd::scale_row(out, x, 1.0F / std::sqrt(mean + args.eps), weight, n);
  }
  simd::gate_row(args.activation, gated, gate, x, 0, n);
  const float mean = simd::sum_of_squares(args.gate_first ? gated : x, n) / static_cast<float>(n);
  simd::scale_row(out, gated, 1.0F / std::sqrt(mean + args.eps), weight, n);
}

void norm_group(const GatedNormArgs& args, float* out, const float* x, const float* gate, const float* weight,
                std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float y = gate != nullptr && args.gate_first ? x[i] * activation_of(args.activation, gate[i]) : x[i];
    sum += static_cast<double>(y) * y;
  }
  const auto factor = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + args.eps));
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = x[i] * (gate != nullptr ? activation_of(args.activation, gate[i]) : 1.0F) * factor * weight[i];
}

}  // namespace

void CpuOps::gated_norm(const GatedNormArgs& args) {
  STRATA_CHECK(args.x.shape().rank() == 3, "gated_norm: x has rank {}, expected 3", args.x.shape().rank());
  const std::int64_t rows = args.x.rows(), heads = args.x[1], dim = args.x[2],
                     group = args.group == 0 ? dim : args.group;
  check_matrix("gated_norm", "x", args.x, rows, heads * dim);
  if (!args.gate.empty()) check_matrix("gated_norm", "gate", args.gate, rows, heads * dim);
  check_matrix("gated_norm", "out", args.out, rows, heads * dim);
  const bool shared = args.weight.elements() == dim;
  check_vector("gated_norm", "weight", args.weight, shared ? dim : heads * dim);
  STRATA_CHECK(dim % group == 0, "gated_norm: groups of {} in {} channels", group, dim);
  const auto* weight = args.weight.data<float>();
  for_row_blocks(*threads_, rows, heads * dim, [&](std::int64_t begin, std::int64_t end) {
    float* gated = worker_scratch(static_cast<std::size_t>(group));
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < heads * dim; i += group) {
        float* out = args.out.row<float>(t) + i;
        const float *x = args.x.row<float>(t) + i, *gate = args.gate.empty() ? nullptr : args.gate.row<float>(t) + i;
        const float* w = weight + (shared ? i % dim : i);
        if (scalar_) {
          norm_group(args, out, x, gate, w, group);
        } else {
          norm_group_simd(args, out, x, gate, w, group, gated);
        }
      }
    }
  });
}

}  // namespace strata
