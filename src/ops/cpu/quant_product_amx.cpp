// Quantised products of many rows with AMX: 16 rows by 16 outputs by 32 inputs an instruction. Its integer sums are exact, so the bits
// are those of every other body; few rows go to AVX-512.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "ops/cpu/amx.h"
#include "ops/cpu/quant_product.h"
#include "ops/cpu/worker_scratch.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8")
namespace strata::cpu {
namespace {

#include "ops/cpu/quant_avx512.h"

constexpr bool kFullUnsigned = false;  // AMX takes signed codes
inline I32 dot(I32 sum, U8, int) { return sum; }
inline I32 dot_signed(I32 sum, U8, int) { return sum; }

#include "ops/cpu/quant_decode.h"

constexpr int kTileRows = 16;
constexpr int kLeastRows = 12;  // of a tile; with fewer AVX-512 is as fast

// One panel widened: signed codes [K / 4][64] as tiles want them, scales and offsets [K / group][16].
struct Widened {
  std::byte* codes;
  F32* scale;
  F32* offset;
};

template <DType kType>
void widen(const std::byte* units, std::int64_t inputs, const Widened& to) {
  using Type = Kind<kType>;
  constexpr QuantLayout kLayout = Type::kLayout;
  U8 table{};
  if constexpr (kLayout.table) table = table_of(quant_table(kType).data(), 0);
  std::byte* out = to.codes;
  for (std::int64_t u = 0; u < inputs / kLayout.unit; ++u, units += kLayout.unit_bytes()) {
    const std::byte* codes = units + kLayout.scale_bytes();
    for (int k = 0; k < kLayout.unit; k += 32, codes += kLayout.code_bytes(), out += 512) {
#pragma GCC unroll 8
      for (int q = 0; q < 8; ++q) {
        const U8 v = Type::quad(codes, q, 0, table) - static_cast<std::uint8_t>(Type::kBias);
        std::memcpy(out + q * 64, &v, 64);
      }
    }
    for (int g = 0; g < kLayout.groups(); ++g) {
      to.scale[u * kLayout.groups() + g] = scale_of<kType>(units, g, 0);
      if constexpr (kLayout.offset) to.offset[u * kLayout.groups() + g] = offset_of<kType>(units, g, 0);
    }
  }
}

constexpr int kLead = 4;  // groups whose sums are under way or stored before they are scaled

// 16 rows by one panel (rows beyond `rows` are garbage and dropped). Sums of group g + kLead are made while those of group g are scaled: a tile takes long to finish, and what it
// stores is read back only when it has left the store buffer.
template <DType kType>
void tile_rows(const QuantProduct& p, const Widened& w, std::int64_t panel, int row, int rows) {
  constexpr QuantLayout kLayout = quant_layout(kType);
  constexpr int kGroup = kLayout.group, kQuads = kGroup / 4;
  const QuantRows x = p.x.from(row);
  const std::int64_t groups = x.inputs / kGroup;
  alignas(64) std::int32_t dots[2 * kLead][kTileRows][kPanelOutputs];
  F32 sum[kTileRows] = {};
  const auto start = [&](std::int64_t g) __attribute__((always_inline)) {
    if (g >= groups) return;
    if (g % 2 == 0) {
      _tile_zero(0);
      _tile_loadd(2, x.codes + g * kGroup, x.inputs);
      _tile_loadd(3, w.codes + g * kQuads * 64, 64);
      _tile_dpbssd(0, 2, 3);
      _tile_stored(0, dots[g % (2 * kLead)], 64);
    } else {
      _tile_zero(1);
      _tile_loadd(4, x.codes + g * kGroup, x.inputs);
      _tile_loadd(5, w.codes + g * kQuads * 64, 64);
      _tile_dpbssd(1, 4, 5);
      _tile_stored(1, dots[g % (2 * kLead)], 64);
    }
  };
  for (int g = 0; g < kLead; ++g) start(g);
  for (std::int64_t g = 0; g < groups; ++g) {
    start(g + kLead);
    const F32 scale = w.scale[g];
    F32 offset{};
    if constexpr (kLayout.offset) offset = w.offset[g];
    const float* row_scale = x.scale + g * kGroup / 32 * x.stride;
    const float* shift = x.shift + g * x.stride;
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      I32 d;
      std::memcpy(&d, dots[g % (2 * kLead)][r], 64);
      sum[r] = fma(__builtin_convertvector(d, F32), scale * all(row_scale[r]), sum[r]);
      if constexpr (kLayout.offset) sum[r] = fma(offset, all(shift[r]), sum[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    if (r < rows) finish(p, panel * kPanelOutputs, &sum[r], p.out[row + r]);
  }
}

template <DType kType>
void product_of(const QuantProduct& p) {
  const QuantLayout layout = quant_layout(kType);
  const std::int64_t inputs = p.x.inputs, groups = inputs / layout.group;
  const auto codes = static_cast<std::size_t>(inputs) * kPanelOutputs, scales = static_cast<std::size_t>(groups) * sizeof(F32);
  auto* scratch = reinterpret_cast<std::byte*>(worker_scratch((codes + 2 * scales) / sizeof(float)));
  const Widened w{scratch, reinterpret_cast<F32*>(scratch + codes), reinterpret_cast<F32*>(scratch + codes + scales)};
  for (std::int64_t panel = p.first_panel; panel < p.first_panel + p.panels; ++panel) {
    widen<kType>(p.weights + static_cast<std::size_t>(panel) * quant_panel_bytes(kType, inputs), inputs, w);
    for (int row = 0; row < p.rows; row += kTileRows) {
      const int rows = p.rows - row < kTileRows ? p.rows - row : kTileRows;
      if (row == 0 || rows < kTileRows) {
        TileConfig config;
        for (const int sums : {0, 1}) config.set(sums, rows, 64);
        for (const int left : {2, 4}) config.set(left, rows, layout.group);
        for (const int right : {3, 5}) config.set(right, layout.group / 4, 64);
        _tile_loadconfig(&config);
      }
      tile_rows<kType>(p, w, panel, row, rows);
    }
  }
  _tile_release();
}

void quantize(DType weights, const float* x, const QuantRows& to) { kQuantAvx512.quantize(weights, x, to); }

void product(const QuantProduct& whole) {
  QuantProduct p = whole, rest = whole;
  const int left = p.rows % kTileRows < kLeastRows ? p.rows % kTileRows : 0;
  p.rows -= left;
  if (left > 0) {
    rest.x = rest.x.from(p.rows);
    rest.out += p.rows;
    rest.rows = left;
    kQuantAvx512.product(rest);
  }
  if (p.rows == 0) return;
  switch (p.dtype) {
#define CASE(name) \
  case DType::name: return product_of<DType::name>(p);
    STRATA_EACH_QUANT(CASE)
#undef CASE
    default: return;
  }
}

}  // namespace

const QuantKernels kQuantAmx{"amx-int8", quantize, product};

}  // namespace strata::cpu
#pragma GCC pop_options
#endif
