#include "ops/cpu/quant_layout.h"

#include <cmath>
#include <cstring>

namespace strata::cpu {
namespace {

// Adds `bits`-wide `value` of (quad, byte) to a plane, or reads it.
struct Place {
  int byte, shift;
};

Place place(int bits, int quad, int byte) {
  switch (bits) {
    case 8: return {quad * 64 + byte, 0};
    case 4: return {quad % 4 * 64 + byte, quad / 4 * 4};
    case 2: return {quad / 4 * 64 + byte, quad % 4 * 2};
    default: return {byte, quad};
  }
}

void put(std::byte* plane, int bits, int quad, int byte, int value) {
  const Place at = place(bits, quad, byte);
  plane[at.byte] |= static_cast<std::byte>((value & ((1 << bits) - 1)) << at.shift);
}

int get(const std::byte* plane, int bits, int quad, int byte) {
  const Place at = place(bits, quad, byte);
  return (static_cast<int>(plane[at.byte]) >> at.shift) & ((1 << bits) - 1);
}

void put_half(float x, std::byte* to) {
  const std::uint16_t bits = float_to_half(x);
  std::memcpy(to, &bits, 2);
}

float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return half_to_float(bits);
}

// Where a super-block of GGUF keeps its two f16.
float super_d(DType dtype, const std::byte* block) {
  return half_at(block + (dtype == DType::kQ2_K ? 80 : dtype == DType::kQ3_K ? 108 : dtype == DType::kQ6_K ? 208 : 0));
}
float super_dmin(DType dtype, const std::byte* block) { return half_at(block + (dtype == DType::kQ2_K ? 82 : 2)); }

// The small integer that times d made the product.
int factor(float product, float d) { return d == 0 ? 0 : static_cast<int>(std::lround(product / d)); }

int stored_code(DType dtype, const QuantLayout& layout, int code) {
  if (!layout.table) return code + layout.bias;
  const auto& table = quant_table(dtype);
  int i = 0;
  while (table[static_cast<std::size_t>(i)] != code) ++i;
  return i;
}

void pack_scales(DType dtype, const QuantLayout& layout, const std::byte* block, const BlockCodes& c, int lane, std::byte* unit) {
  if (layout.unit == 32) {
    if (layout.e8m0) {
      unit[lane] = block[0];
    } else {
      put_half(c.scale[0], unit + 2 * lane);
    }
    if (layout.offset) put_half(c.offset[0], unit + 32 + 2 * lane);
    return;
  }
  const float d = super_d(dtype, block), dmin = layout.offset ? super_dmin(dtype, block) : 0.0F;
  put_half(d, unit + 2 * lane);
  std::byte* bytes = unit + 32;
  if (layout.offset) {
    put_half(dmin, bytes + 2 * lane);
    bytes += 32;
  }
  for (int g = 0; g < layout.groups(); ++g) {
    const auto i = static_cast<std::size_t>(g);
    bytes[16 * g + lane] = static_cast<std::byte>(factor(c.scale[i], d));
    if (layout.offset) bytes[16 * (layout.groups() + g) + lane] = static_cast<std::byte>(factor(-c.offset[i], dmin));
  }
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

void pack_quant_lane(DType dtype, const std::byte* blocks, std::int64_t inputs, int lane, std::byte* panel) {
  const QuantLayout layout = quant_layout(dtype);
  BlockCodes c;
  for (std::int64_t k = 0; k < inputs; k += layout.unit, blocks += info(dtype).block_bytes, panel += layout.unit_bytes()) {
    unpack_block(dtype, blocks, c);
    pack_scales(dtype, layout, blocks, c, lane, panel);
    for (int i = 0; i < layout.unit; ++i) {
      std::byte* codes = panel + layout.scale_bytes() + i / 32 * layout.code_bytes();
      const int value = stored_code(dtype, layout, c.code[static_cast<std::size_t>(i)]);
      const int quad = i % 32 / 4, byte = lane * 4 + i % 4;
      put(codes, layout.low, quad, byte, value);
      if (layout.high > 0) put(codes + layout.low * 64, layout.high, quad, byte, value >> layout.low);
    }
  }
}

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
  const float scale = half_at(unit + 2 * lane) * static_cast<float>(static_cast<std::int8_t>(bytes[16 * group + lane]));
  if (!layout.offset) return {scale, 0};
  return {scale, -(half_at(unit + 32 + 2 * lane) * static_cast<float>(static_cast<int>(bytes[16 * (layout.groups() + group) + lane])))};
}

}  // namespace strata::cpu
