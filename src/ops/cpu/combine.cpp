// combine: the weighted sum of a row's expert outputs, and the shared expert.
#include <cmath>

#include "ops/cpu/cpu_ops.h"

namespace strata {

void CpuOps::combine(Tensor out, Tensor y, const Routing& routing, Tensor shared, Tensor gate) {
  const std::int64_t rows = out.rows(), width = out.row_size(), k = routing.weight.row_size();
  STRATA_CHECK(routing.weight.rows() == rows, "combine rows: out {}, routing {}", rows, routing.weight.rows());
  STRATA_CHECK(y.rows() == rows * k, "combine rows: y {}, choices {}", y.rows(), rows * k);
  STRATA_CHECK(y.row_size() == width, "combine width: out {}, y {}", width, y.row_size());
  STRATA_CHECK(shared.empty() || (shared.rows() == rows && shared.row_size() == width), "combine shared: {}, out {}",
               shared.shape().to_string(), out.shape().to_string());
  STRATA_CHECK(gate.empty() || (gate.rows() == rows && gate.row_size() == 1), "combine gate: {}, rows {}",
               gate.shape().to_string(), rows);
  threads_->parallel_for(rows, [&](std::int64_t t) {
    float* to = out.row<float>(t);
    const float* weights = routing.weight.row<float>(t);
    for (std::int64_t j = 0; j < k; ++j) {
      const float* from = y.row<float>(t * k + j);
      const float w = weights[j];
      if (j == 0) {
        for (std::int64_t i = 0; i < width; ++i) to[i] = w * from[i];
      } else {
        for (std::int64_t i = 0; i < width; ++i) to[i] += w * from[i];
      }
    }
    if (shared.empty()) return;
    const float* from = shared.row<float>(t);
    const float w = gate.empty() ? 1.0F : 1.0F / (1.0F + std::exp(-gate.row<float>(t)[0]));
    for (std::int64_t i = 0; i < width; ++i) to[i] += w * from[i];
  });
}

}  // namespace strata
