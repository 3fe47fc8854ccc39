#include "ops/cpu/quant_layout.h"

#include <cmath>

namespace strata::cpu {
namespace {

// Where a plane of `bits` keeps (quad, byte).
struct Place {
  int byte, shift;
};

Place place(int bits, int quad, int byte) {
  switch (bits) {
    case 8:
      return {quad * 64 + byte, 0};
    case 4:
      return {quad % 4 * 64 + byte, quad / 4 * 4};
    case 2:
      return {quad / 4 * 64 + byte, quad % 4 * 2};
    default:
      return {byte, quad};
  }
}

int get(const std::byte* plane, int bits, int quad, int byte) {
  const Place at = place(bits, quad, byte);
  return (static_cast<int>(plane[at.byte]) >> at.shift) & ((1 << bits) - 1);
}

struct CodePlace {
  const std::byte* codes;
  int quad, byte;
};

CodePlace code_place(const QuantLayout& layout, const std::byte* panel, std::int64_t k, int lane) {
  const std::byte* unit = panel + k / layout.unit * layout.unit_bytes();
  const int in = static_cast<int>(k % layout.unit);
  return {unit + layout.scale_bytes() + in / 32 * layout.code_bytes(), in % 32 / 4, lane * 4 + in % 4};
}

}  // namespace

int quant_code(DType dtype, const std::byte* panel, std::int64_t k, int lane) {
  const QuantLayout layout = quant_layout(dtype);
  const CodePlace at = code_place(layout, panel, k, lane);
  const int low = get(at.codes, layout.low, at.quad, at.byte);
  if (layout.low == 8) return static_cast<std::int8_t>(low);
  if (layout.table) return quant_table(dtype)[static_cast<std::size_t>(low)];
  const int high = layout.high > 0 ? get(at.codes + layout.low * 64, layout.high, at.quad, at.byte) : 0;
  return (low | high << layout.low) - layout.bias;
}

QuantScale quant_scale(DType dtype, const std::byte* panel, std::int64_t k, int lane) {
  const QuantLayout layout = quant_layout(dtype);
  const std::byte* unit = panel + k / layout.unit * layout.unit_bytes();
  if (layout.unit == 32) {
    if (layout.e8m0) return {std::ldexp(1.0F, static_cast<int>(unit[lane]) - 128), 0};
    return {half_at(unit + 2 * lane), layout.offset ? half_at(unit + 32 + 2 * lane) : 0.0F};
  }
  const auto group = k % layout.unit / layout.group;
  const std::byte* bytes = unit + (layout.offset ? 64 : 32);
  const float scale =
      half_at(unit + 2 * lane) * static_cast<float>(static_cast<std::int8_t>(bytes[16 * group + lane]));
  if (!layout.offset) return {scale, 0};
  return {scale, -(half_at(unit + 32 + 2 * lane) *
                   static_cast<float>(static_cast<int>(bytes[16 * (layout.groups() + group) + lane])))};
}

}  // namespace strata::cpu
