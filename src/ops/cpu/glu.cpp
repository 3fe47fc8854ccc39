// glu: act(gate) * up of a fused projection. Shazeer 2020 (GLU variants).
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/simd_rows.h"

namespace strata {

void CpuOps::glu(Tensor out, Tensor gate_up, Activation activation, float limit) {
  const std::int64_t n = out.row_size();
  check_matrix("glu", "out", out, out.rows(), n);
  check_matrix("glu", "gate_up", gate_up, out.rows(), 2 * n);
  const bool clamped = activation == Activation::kClampedSwiGlu;
  STRATA_CHECK(!clamped || limit > 0, "glu: the clamped form needs a limit, has {}", limit);
  for_row_blocks(*threads_, out.rows(), 2 * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* to = out.row<float>(t);
      const float* gate = gate_up.row<float>(t);
      const float* up = gate + n;
      if (!scalar_) {
        simd::gate_row(activation, to, gate, up, limit, n);
        continue;
      }
      for (std::int64_t i = 0; i < n; ++i) {
        to[i] = clamped ? clamped_swiglu(gate[i], up[i], limit) : activation_of(activation, gate[i]) * up[i];
      }
    }
  });
}

}  // namespace strata
