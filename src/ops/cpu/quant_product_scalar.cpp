// The plain body of the quantised products, which says what the others must equal bit for bit; and the choice among them.
#include <cmath>

#include "ops/cpu/amx.h"
#include "ops/cpu/quant_product.h"
#include "ops/cpu/quantize_activations.h"

namespace strata::cpu {
namespace {

void quantize(DType weights, const float* x, const QuantRows& to) {
  if (quant_layout(weights).group == 16) return quantize_activations<16>(x, 0, to);
  quantize_activations<32>(x, 0, to);
}

void product(const QuantProduct& p) {
  const QuantLayout layout = quant_layout(p.dtype);
  const std::int64_t groups = p.x.inputs / layout.group;
  for (std::int64_t panel = p.first_panel; panel < p.first_panel + p.panels; ++panel) {
    const std::byte* weights = p.weights + static_cast<std::size_t>(panel) * quant_panel_bytes(p.dtype, p.x.inputs);
    for (int lane = 0; lane < kPanelOutputs && panel * kPanelOutputs + lane < p.outputs; ++lane) {
      const std::int64_t n = panel * kPanelOutputs + lane;
      for (int r = 0; r < p.rows; ++r) {
        const QuantRows x = p.x.from(r);
        float sum = 0;
        for (std::int64_t g = 0; g < groups; ++g) {
          const std::int64_t k = g * layout.group;
          std::int32_t dot = 0;
          for (int i = 0; i < layout.group; ++i) dot += quant_code(p.dtype, weights, k + i, lane) * x.codes[k + i];
          const QuantScale w = quant_scale(p.dtype, weights, k, lane);
          sum = std::fma(static_cast<float>(dot), w.scale * x.scale[k / 32 * x.stride], sum);
          if (layout.offset) sum = std::fma(w.offset, x.shift[g * x.stride], sum);
        }
        p.out[r][n] = p.bias != nullptr ? sum + p.bias[n] : sum;
      }
    }
  }
}

}  // namespace

const QuantKernels kQuantScalar{"scalar", quantize, product};

const QuantKernels& best_quant_kernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 =
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (avx512 && amx_available()) return kQuantAmx;
  if (avx512) return kQuantAvx512;
  if (__builtin_cpu_supports("avxvnni")) return kQuantAvxVnni;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kQuantAvx2;
#elif defined(__aarch64__)
  return kQuantNeon;
#endif
  return kQuantScalar;
}

}  // namespace strata::cpu
