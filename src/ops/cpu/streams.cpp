// mix_streams, inject_streams, gate_streams: several residual streams a row.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/scalar_math.h"

namespace strata {

void CpuOps::mix_streams(Tensor out, Tensor x, Tensor mix) {
  const std::int64_t rows = out.rows(), dim = out.row_size(), width = x.row_size();
  STRATA_CHECK(dim > 0 && width % dim == 0, "mix_streams: rows of {} in streams of {}", width, dim);
  check_matrix("mix_streams", "out", out, rows, dim);
  check_matrix("mix_streams", "x", x, rows, width);
  check_matrix("mix_streams", "mix", mix, rows, width);
  const float share = static_cast<float>(dim) / static_cast<float>(width);
  for_row_blocks(*threads_, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* to = out.row<float>(t);
      const float *from = x.row<float>(t), *weight = mix.row<float>(t);
      std::fill_n(to, dim, 0.0F);
      for (std::int64_t i = 0; i < width; ++i) to[i % dim] += sigmoid(weight[i]) * from[i];
      for (std::int64_t i = 0; i < dim; ++i) to[i] *= share;
    }
  });
}

void CpuOps::inject_streams(Tensor x, Tensor delta, Tensor weight) {
  const std::int64_t rows = x.rows(), streams = weight.row_size(), dim = delta.row_size();
  check_matrix("inject_streams", "x", x, rows, streams * dim);
  check_matrix("inject_streams", "delta", delta, rows, dim);
  check_matrix("inject_streams", "weight", weight, rows, streams);
  for_row_blocks(*threads_, rows, streams * dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t s = 0; s < streams; ++s) {
        float* to = x.row<float>(t) + s * dim;
        const float factor = 2 * sigmoid(weight.row<float>(t)[s]);
        for (std::int64_t i = 0; i < dim; ++i) to[i] += factor * delta.row<float>(t)[i];
      }
    }
  });
}

void CpuOps::gate_streams(Tensor out, Tensor key, Tensor query, Tensor value) {
  const std::int64_t rows = out.rows(), dim = value.row_size(), width = out.row_size();
  STRATA_CHECK(dim > 0 && width % dim == 0, "gate_streams: rows of {} in streams of {}", width, dim);
  check_matrix("gate_streams", "out", out, rows, width);
  check_matrix("gate_streams", "key", key, rows, width);
  check_matrix("gate_streams", "query", query, rows, width);
  check_matrix("gate_streams", "value", value, rows, dim);
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  for_row_blocks(*threads_, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t at = 0; at < width; at += dim) {
        const float *k = key.row<float>(t) + at, *q = query.row<float>(t) + at;
        double sum = 0;
        for (std::int64_t i = 0; i < dim; ++i) sum += static_cast<double>(k[i]) * q[i];
        const float dot = static_cast<float>(sum) * scale;
        const float root = std::sqrt(std::max(std::abs(dot), 1e-6F));
        const float gate = sigmoid(dot > 0 ? root : dot < 0 ? -root : 0.0F);
        for (std::int64_t i = 0; i < dim; ++i) out.row<float>(t)[at + i] = gate * value.row<float>(t)[i];
      }
    }
  });
}

}  // namespace strata
