// rms_norm and add_rms_norm: Zhang and Sennrich 2019, with the residual addition before it fused in.
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/simd_rows.h"

namespace strata {
namespace {

void norm_row(bool scalar, float* out, const float* x, const float* weight, std::int64_t n, float eps) {
  if (!scalar) {
    const float mean = simd::sum_of_squares(x, n) / static_cast<float>(n);
    simd::scale_row(out, x, 1.0F / std::sqrt(mean + eps), weight, n);
    return;
  }
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const auto factor = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + eps));
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * factor * (weight != nullptr ? weight[i] : 1.0F);
}

}  // namespace

void CpuOps::rms_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  const std::int64_t n = x.row_size();
  check_matrix("rms_norm", "x", x, x.rows(), n);
  check_matrix("rms_norm", "out", out, x.rows(), n);
  if (!weight.empty()) check_vector("rms_norm", "weight", weight, n);
  const float* w = vector_or_null(weight);
  for_row_blocks(*threads_, x.rows(), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      norm_row(scalar_, out.row<float>(t), x.row<float>(t), w, n, eps);
  });
}

void CpuOps::add_rms_norm(Tensor out, Tensor x, Tensor delta, float scale, Tensor weight, float eps) {
  if (delta.empty()) return rms_norm(out, x, weight, eps);
  const std::int64_t n = x.row_size();
  check_matrix("add_rms_norm", "x", x, x.rows(), n);
  check_matrix("add_rms_norm", "delta", delta, x.rows(), n);
  check_matrix("add_rms_norm", "out", out, x.rows(), n);
  if (!weight.empty()) check_vector("add_rms_norm", "weight", weight, n);
  const float* w = vector_or_null(weight);
  for_row_blocks(*threads_, x.rows(), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = x.row<float>(t);
      const float* d = delta.row<float>(t);
      for (std::int64_t i = 0; i < n; ++i) row[i] += d[i] * scale;
      norm_row(scalar_, out.row<float>(t), row, w, n, eps);
    }
  });
}

}  // namespace strata
