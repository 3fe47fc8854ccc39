// The body of the quantised products, included after quant_decode.h for each instruction set.

constexpr int kAhead = 1024;  // bytes of a panel fetched ahead of their use

template <DType kType, int kRows, int kPanels>
void tile(const QuantProduct& p, std::int64_t first, int row) {
  using Type = Kind<kType>;
  constexpr QuantLayout kLayout = Type::kLayout;
  constexpr int kWide = kPanels * kVectors;
  const QuantRows x = p.x.from(row);
  const std::int64_t inputs = x.inputs;
  const std::size_t bytes = quant_panel_bytes(kType, inputs);
  const std::byte* units = p.weights + static_cast<std::size_t>(first) * bytes;
  U8 table{};
  if constexpr (kLayout.table) table = table_of(quant_table(kType).data(), Type::kBias);
  F32 sum[kRows][kWide] = {};
  for (std::int64_t k = 0; k < inputs; k += 32) {
    const int in = static_cast<int>(k % kLayout.unit);
    const std::byte* codes = units + kLayout.scale_bytes() + in / 32 * kLayout.code_bytes();
    for (int half = 0; half < 32 / kLayout.group; ++half) {
      const std::int64_t g = k / kLayout.group + half;
      I32 dots[kRows][kWide];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kWide; ++v) dots[r][v] = I32{} + x.start[g * x.stride + r];
      }
#pragma GCC unroll 8
      for (int i = 0; i < kLayout.group / 4; ++i) {
        const int q = kLayout.group == 16 && half == 1 ? i + 4 : i;
        int four[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) std::memcpy(&four[r], x.codes + r * inputs + k + q * 4, 4);
#pragma GCC unroll 8
        for (int v = 0; v < kWide; ++v) {
          const U8 w = Type::quad(codes + static_cast<std::size_t>(v / kVectors) * bytes, q, v % kVectors, table);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) dots[r][v] = Type::add(dots[r][v], w, four[r]);
        }
      }
#pragma GCC unroll 8
      for (int v = 0; v < kWide; ++v) {
        const std::byte* unit = units + static_cast<std::size_t>(v / kVectors) * bytes;
        const int in_unit = static_cast<int>(g) % kLayout.groups();
        const F32 scale = scale_of<kType>(unit, in_unit, v % kVectors);
        F32 offset{};
        if constexpr (kLayout.offset) offset = offset_of<kType>(unit, in_unit, v % kVectors);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const F32 both = scale * all(x.scale[k / 32 * x.stride + r]);
          sum[r][v] = fma(__builtin_convertvector(dots[r][v], F32), both, sum[r][v]);
          if constexpr (kLayout.offset) sum[r][v] = fma(offset, all(x.shift[g * x.stride + r]), sum[r][v]);
        }
      }
    }
    if constexpr (kRows == 1) {
#pragma GCC unroll 8
      for (int i = 0; i < kPanels; ++i) {
        for (int b = 0; b < kLayout.code_bytes(); b += 64) __builtin_prefetch(codes + static_cast<std::size_t>(i) * bytes + kAhead + b);
      }
    }
    if (in + 32 == kLayout.unit) units += kLayout.unit_bytes();
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kPanels; ++i) finish(p, (first + i) * kPanelOutputs, sum[r] + i * kVectors, p.out[row + r]);
  }
}

constexpr int kTileRows = kVectors == 1 ? 8 : 3;  // sums and dots in 32 registers of 16 lanes, or 16 of 8

template <DType kType, int kRows>
void row_tile(const QuantProduct& p, int row) {
  constexpr int kWide = kVectors > 1 ? 1 : kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  std::int64_t i = p.first_panel;
  const std::int64_t end = i + p.panels;
  for (; i + kWide <= end; i += kWide) tile<kType, kRows, kWide>(p, i, row);
  if constexpr (kWide > 1) {
    for (; i < end; ++i) tile<kType, kRows, 1>(p, i, row);
  }
}

template <DType kType>
void product_of(const QuantProduct& p) {
  for (int row = 0; row < p.rows; row += kTileRows) {
    switch (p.rows - row < kTileRows ? p.rows - row : kTileRows) {
      case 1: row_tile<kType, 1>(p, row); break;
      case 2: row_tile<kType, 2>(p, row); break;
      case 3: row_tile<kType, 3>(p, row); break;
#if QUANT_TILE_ROWS == 8
      case 4: row_tile<kType, 4>(p, row); break;
      case 5: row_tile<kType, 5>(p, row); break;
      case 6: row_tile<kType, 6>(p, row); break;
      case 7: row_tile<kType, 7>(p, row); break;
      default: row_tile<kType, 8>(p, row); break;
#else
      default: break;
#endif
    }
  }
}

#include "ops/cpu/quant_dispatch.h"
