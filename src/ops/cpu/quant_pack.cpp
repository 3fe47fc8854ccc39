#include "ops/cpu/quant_pack.h"

#include <array>
#include <cmath>
#include <cstring>

#include "ops/cpu/quant_layout.h"
#include "tensor/quant.h"

namespace strata::cpu {
namespace {

// Where a super-block of GGUF keeps its f16 d; dmin follows where there is one.
const std::byte* super_d(DType dtype, const std::byte* block) {
  return block + (dtype == DType::kQ2_K ? 80 : dtype == DType::kQ3_K ? 108 : dtype == DType::kQ6_K ? 208 : 0);
}

// The small integer that times d made the product.
int factor(float product, float d) { return d == 0 ? 0 : static_cast<int>(std::lround(product / d)); }

// Stored codes by the byte that a code is.
using CodeMap = std::array<std::uint8_t, 256>;

CodeMap stored_codes(DType dtype, const QuantLayout& layout) {
  CodeMap map{};
  for (int code = -128; code < 128; ++code)
    map[static_cast<std::uint8_t>(code)] = static_cast<std::uint8_t>(code + layout.bias);
  if (!layout.table) return map;
  for (int i = 15; i >= 0; --i) {  // of equal values the first
    map[static_cast<std::uint8_t>(quant_table(dtype)[static_cast<std::size_t>(i)])] =
        static_cast<std::uint8_t>(i);
  }
  return map;
}

void pack_scales(DType dtype, const QuantLayout& layout, const std::byte* block, const BlockCodes& c,
                 int lane, std::byte* unit) {
  if (layout.unit == 32) {  // blocks of 32 begin with the scale and the offset
    if (layout.e8m0) {
      unit[lane] = block[0];
    } else {
      std::memcpy(unit + 2 * lane, block, 2);
    }
    if (layout.offset) std::memcpy(unit + 32 + 2 * lane, block + 2, 2);
    return;
  }
  const std::byte* halves = super_d(dtype, block);
  const float d = half_at(halves), dmin = layout.offset ? half_at(halves + 2) : 0.0F;
  std::memcpy(unit + 2 * lane, halves, 2);
  std::byte* bytes = unit + 32;
  if (layout.offset) {
    std::memcpy(bytes + 2 * lane, halves + 2, 2);
    bytes += 32;
  }
  for (int g = 0; g < layout.groups(); ++g) {
    const auto i = static_cast<std::size_t>(g);
    bytes[16 * g + lane] = static_cast<std::byte>(factor(c.scale[i], d));
    if (layout.offset)
      bytes[16 * (layout.groups() + g) + lane] = static_cast<std::byte>(factor(-c.offset[i], dmin));
  }
}

// Stored codes of 32 inputs by quad and byte of its vector, and the same as a plane: bits [shift, shift +
// kBits) of each.
using Quads = std::uint8_t[8][64];

template <int kBits>
void pack_plane(const Quads& codes, int shift, std::byte* to) {
  constexpr int kShared = 8 / kBits;  // quads of a vector
  for (int v = 0; v < kBits; ++v) {
    for (int byte = 0; byte < 64; ++byte) {
      unsigned all = 0;
      for (int j = 0; j < kShared; ++j) {
        const int quad = kBits == 4 ? v + j * 4 : v * kShared + j;
        all |= (codes[quad][byte] >> shift & ((1U << kBits) - 1)) << (j * kBits);
      }
      to[v * 64 + byte] = static_cast<std::byte>(all);
    }
  }
}

void pack_plane_of(int bits, const Quads& codes, int shift, std::byte* to) {
  switch (bits) {
    case 8:
      return pack_plane<8>(codes, shift, to);
    case 4:
      return pack_plane<4>(codes, shift, to);
    case 2:
      return pack_plane<2>(codes, shift, to);
    default:
      return pack_plane<1>(codes, shift, to);
  }
}

}  // namespace

void pack_quant_panel(DType dtype, const std::byte* rows, std::int64_t stride, int lanes, std::int64_t inputs,
                      std::byte* panel) {
  const QuantLayout layout = quant_layout(dtype);
  const CodeMap stored = stored_codes(dtype, layout);
  Quads codes[kMaxBlock / 32] = {};  // lanes beyond the last stay zero
  BlockCodes c;
  for (std::int64_t k = 0; k < inputs;
       k += layout.unit, rows += info(dtype).block_bytes, panel += layout.unit_bytes()) {
    for (int lane = 0; lane < lanes; ++lane) {
      const std::byte* block = rows + lane * stride;
      unpack_block(dtype, block, c);
      pack_scales(dtype, layout, block, c, lane, panel);
      for (int i = 0; i < layout.unit; ++i) {
        codes[i / 32][i % 32 / 4][lane * 4 + i % 4] =
            stored[static_cast<std::uint8_t>(c.code[static_cast<std::size_t>(i)])];
      }
    }
    for (int i = 0; i < layout.unit / 32; ++i) {
      std::byte* to = panel + layout.scale_bytes() + i * layout.code_bytes();
      pack_plane_of(layout.low, codes[i], 0, to);
      if (layout.high > 0) pack_plane_of(layout.high, codes[i], layout.low, to + layout.low * 64);
    }
  }
}

}  // namespace strata::cpu
