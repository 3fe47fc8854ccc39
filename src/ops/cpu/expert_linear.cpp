// expert_linear: the product of each row with its chosen experts, an expert's weights read once for all its rows.
#include <algorithm>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/panel_product.h"

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
  const std::int64_t panels = cpu::panels_of(w.outputs()), groups = (panels + kGroupPanels - 1) / kGroupPanels;
  const std::size_t expert_bytes = static_cast<std::size_t>(panels) * cpu::panel_bytes(w.dtype, w.inputs());
  const std::int64_t expert_scales = panels * cpu::scale_blocks(w.inputs()) * cpu::kPanelOutputs;
  const auto* order = routing.order.data<std::int32_t>();
  const auto* first = routing.first.data<std::int32_t>();
  const auto body = scalar_ ? cpu::panel_product_scalar : cpu::panel_product;

  // The experts that have rows; a piece is one of them by a group of panels.
  const Scratch scratch(arena());
  auto* used = make({experts}, DType::kI32).data<std::int32_t>();
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (first[e] < first[e + 1]) used[count++] = static_cast<std::int32_t>(e);
  }
  threads_->parallel_for(count * groups, [&](std::int64_t piece) {
    const std::int64_t e = used[piece / groups], group = piece % groups;
    const float* xs[kBlockRows];
    float* outs[kBlockRows];
    for (std::int64_t i = first[e]; i < first[e + 1]; i += kBlockRows) {
      const auto n = static_cast<int>(std::min<std::int64_t>(kBlockRows, first[e + 1] - i));
      for (int r = 0; r < n; ++r) {
        xs[r] = x.row<float>(order[i + r] / divisor);
        outs[r] = out.row<float>(order[i + r]);
      }
      body({.dtype = w.dtype,
            .weights = w.data.raw() + static_cast<std::size_t>(e) * expert_bytes,
            .scales = w.scales.empty() ? nullptr : w.scales.data<float>() + e * expert_scales,
            .bias = bias.empty() ? nullptr : bias.data<float>() + e * w.outputs(),
            .inputs = w.inputs(),
            .outputs = w.outputs(),
            .first_panel = group * kGroupPanels,
            .panels = std::min<std::int64_t>(kGroupPanels, panels - group * kGroupPanels),
            .x = xs,
            .out = outs,
            .rows = n});
    }
  });
}

}  // namespace strata
