// embed: rows of a packed table, so that a tied head and the embedding are one weight.
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/quant_layout.h"

namespace strata {

void CpuOps::embed(Tensor out, Tensor tokens, const Weight& table, float scale) {
  STRATA_CHECK(table.shape.rank() == 2, "embed: table {} is not a matrix", table.shape.to_string());
  STRATA_CHECK(out.row_size() == table.inputs(), "embed width: out {}, table {}", out.row_size(), table.inputs());
  STRATA_CHECK(out.rows() == tokens.elements(), "embed rows: out {}, tokens {}", out.rows(), tokens.elements());
  const auto* ids = tokens.data<std::int32_t>();
  const std::size_t bytes = cpu::packed_panel_bytes(table.dtype, table.inputs());
  threads_->parallel_for(out.rows(), [&](std::int64_t t) {
    STRATA_CHECK(ids[t] >= 0 && ids[t] < table.outputs(), "token {} of a vocabulary of {}", ids[t], table.outputs());
    const std::int64_t panel = ids[t] / cpu::kPanelOutputs;
    const int lane = ids[t] % cpu::kPanelOutputs;
    const std::byte* data = table.data.raw() + static_cast<std::size_t>(panel) * bytes;
    const float* scales = table.scales.empty() ? nullptr : table.scales.row<float>(panel);
    float* to = out.row<float>(t);
    for (std::int64_t k = 0; k < table.inputs(); ++k) {
      const float w = is_block_type(table.dtype) ? cpu::quant_weight(table.dtype, data, k, lane)
                                                 : cpu::panel_weight(table.dtype, data, scales, k, lane);
      to[k] = w * scale;
    }
  });
}

}  // namespace strata
