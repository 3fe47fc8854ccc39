// add, multiply, scale, activate: one element at a time, in place.
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/simd_rows.h"

namespace strata {

void CpuOps::add(Tensor x, Tensor delta, float scale) {
  const std::int64_t n = x.row_size();
  check_matrix("add", "x", x, x.rows(), n);
  check_matrix("add", "delta", delta, x.rows(), n);
  for_row_blocks(*threads_, x.rows(), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = x.row<float>(t);
      const float* d = delta.row<float>(t);
      for (std::int64_t i = 0; i < n; ++i) row[i] += d[i] * scale;
    }
  });
}

void CpuOps::multiply(Tensor x, Tensor y) {
  const std::int64_t n = x.row_size();
  const bool one = y.row_size() == 1;
  check_matrix("multiply", "x", x, x.rows(), n);
  check_matrix("multiply", "y", y, x.rows(), one ? 1 : n);
  for_row_blocks(*threads_, x.rows(), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = x.row<float>(t);
      const float* by = y.row<float>(t);
      for (std::int64_t i = 0; i < n; ++i) row[i] *= by[one ? 0 : i];
    }
  });
}

void CpuOps::scale(Tensor x, float factor, float softcap) {
  const std::int64_t n = x.row_size();
  check_matrix("scale", "x", x, x.rows(), n);
  for_row_blocks(*threads_, x.rows(), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = x.row<float>(t);
      if (!scalar_ && softcap != 0) {
        simd::softcap_row(row, factor, softcap, n);
        continue;
      }
      for (std::int64_t i = 0; i < n; ++i) {
        row[i] *= factor;
        if (softcap != 0) row[i] = softcap * std::tanh(row[i] / softcap);
      }
    }
  });
}

void CpuOps::activate(Tensor x, Activation activation) {
  const std::int64_t n = x.row_size();
  check_matrix("activate", "x", x, x.rows(), n);
  for_row_blocks(*threads_, x.rows(), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = x.row<float>(t);
      if (!scalar_) {
        simd::activate_row(activation, row, row, n);
        continue;
      }
      for (std::int64_t i = 0; i < n; ++i) row[i] = activation_of(activation, row[i]);
    }
  });
}

}  // namespace strata
