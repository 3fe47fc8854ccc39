// expert_linear: the product of each row with its chosen experts, an expert's weights read once for all its rows.
#include <algorithm>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/products.h"

namespace strata {

using cpu::kBlockRows;
using cpu::kGroupPanels;

void CpuOps::expert_linear(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias) {
  const std::int64_t experts = w.experts(), rows = routing.expert.rows(), entries = routing.order.elements();
  STRATA_CHECK(experts > 0, "expert_linear: weight {} has no experts", w.shape.to_string());
  STRATA_CHECK(routing.first.elements() == experts + 1, "expert_linear experts: routing {}, weight {}",
               routing.first.elements() - 1, experts);
  STRATA_CHECK(x.row_size() == w.inputs(), "expert_linear inputs: x {}, weight {}", x.row_size(), w.inputs());
  STRATA_CHECK(out.row_size() == w.outputs(), "expert_linear outputs: out {}, weight {}", out.row_size(), w.outputs());
  STRATA_CHECK(out.rows() == entries, "expert_linear rows: out {}, choices {}", out.rows(), entries);
  STRATA_CHECK(x.rows() == rows || x.rows() == entries, "expert_linear rows: x {}, routing {} or {}", x.rows(), rows, entries);
  STRATA_CHECK(bias.empty() || bias.elements() == experts * w.outputs(), "expert_linear bias: {}, outputs {}",
               bias.elements(), experts * w.outputs());
  if (entries == 0) return;

  const std::int64_t choices = entries / rows;
  const std::int64_t divisor = x.rows() == entries ? 1 : choices;  // entry / divisor is the row of x
  const auto* order = routing.order.data<std::int32_t>();
  const auto* first = routing.first.data<std::int32_t>();

  // Rows in the order of their experts, and the experts that have any.
  const Scratch scratch(arena());
  const auto** xs = reinterpret_cast<const float**>(make({entries}, DType::kI64).raw());
  auto** outs = reinterpret_cast<float**>(make({entries}, DType::kI64).raw());
  for (std::int64_t i = 0; i < entries; ++i) {
    xs[i] = x.row<float>(order[i] / divisor);
    outs[i] = out.row<float>(order[i]);
  }
  auto* used = make({experts}, DType::kI32).data<std::int32_t>();
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (first[e] < first[e + 1]) used[count++] = static_cast<std::int32_t>(e);
  }
  const cpu::LeftRows left(kernels_, *threads_, arena(), w.dtype, w.inputs(), xs, entries);

  // A piece is an expert by a group of panels, with all the expert's rows: its weights are read from memory once.
  const std::int64_t panels = cpu::panels_of(w.outputs()), groups = (panels + kGroupPanels - 1) / kGroupPanels;
  weight_bytes_read_ += w.storage.bytes() / static_cast<std::size_t>(experts) * static_cast<std::size_t>(count);
  threads_->parallel_for(count * groups, [&](std::int64_t piece) {
    const std::int64_t e = used[piece / groups], panel = piece % groups * kGroupPanels;
    const cpu::MatrixView matrix(w, bias, e);
    for (std::int64_t i = first[e]; i < first[e + 1]; i += kBlockRows) {
      const auto n = static_cast<int>(std::min<std::int64_t>(kBlockRows, first[e + 1] - i));
      left.multiply(matrix, i, n, panel, std::min<std::int64_t>(kGroupPanels, panels - panel), outs + i);
    }
  });
}

}  // namespace strata
