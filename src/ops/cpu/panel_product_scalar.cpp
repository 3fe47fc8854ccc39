// The plain body of panel_product: what the SIMD bodies must equal bit for bit.
#include <cmath>

#include "ops/cpu/panel_product.h"

namespace strata::cpu {
namespace {

// Inlined into callers compiled with and without the fma instruction: the bits are the same, the speed is not.
[[gnu::always_inline]] inline void body(const PanelProduct& p) {
  for (std::int64_t panel = p.first_panel; panel < p.first_panel + p.panels; ++panel) {
    const std::byte* weights = p.weights + static_cast<std::size_t>(panel) * panel_bytes(p.dtype, p.inputs);
    const float* scales = p.scales == nullptr ? nullptr : p.scales + panel * scale_blocks(p.inputs) * kPanelOutputs;
    for (int r = 0; r < p.rows; ++r) {
      for (int lane = 0; lane < kPanelOutputs; ++lane) {
        const std::int64_t n = panel * kPanelOutputs + lane;
        if (n >= p.outputs) break;
        float sum = 0;
        for (std::int64_t k = 0; k < p.inputs; ++k) {
          sum = __builtin_fmaf(panel_weight(p.dtype, weights, scales, k, lane), p.x[r][k], sum);
        }
        p.out[r][n] = p.bias == nullptr ? sum : sum + p.bias[n];
      }
    }
  }
}

#if defined(__x86_64__)
[[gnu::target("fma")]] void body_fma(const PanelProduct& p) { body(p); }
#endif
void body_plain(const PanelProduct& p) { body(p); }

}  // namespace

void panel_product_scalar(const PanelProduct& product) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma")) return body_fma(product);
#endif
  body_plain(product);
}

}  // namespace strata::cpu
