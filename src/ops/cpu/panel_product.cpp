// The SIMD bodies of panel_product: lanes along the outputs, so that each sum stays one chain over the inputs.
#include "ops/cpu/panel_product.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/panel_product.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, kPanelOutputs>;
using U32 = hn::Repartition<std::uint32_t, F32>;
using V = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kVectors = kPanelOutputs / kLanes;  // vectors of a panel

// Widens two inputs (k, k + 1) of one vector of lanes. `scale` is used by f8 only.
template <DType kType>
struct Decode {
  static constexpr int kPairBytes = (kType == DType::kF32 ? 8 : kType == DType::kF8E4M3 ? 2 : 4) * kPanelOutputs;

  // pair: the panel at input k (even); lane: the first lane.
  static HWY_INLINE void pair(const std::byte* at, int lane, V scale, V& even, V& odd) {
    const F32 d;
    if constexpr (kType == DType::kF32) {
      const auto* w = reinterpret_cast<const float*>(at) + lane;
      even = hn::LoadU(d, w);
      odd = hn::LoadU(d, w + kPanelOutputs);
    } else if constexpr (kType == DType::kBF16) {
      const U32 du;
      const auto both = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(at) + lane);
      even = hn::BitCast(d, hn::ShiftLeft<16>(both));
      odd = hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000U)));
    } else if constexpr (kType == DType::kF16) {
      const hn::Rebind<hwy::float16_t, F32> dh;
      const auto* w = reinterpret_cast<const hwy::float16_t*>(at) + lane;
      even = hn::PromoteTo(d, hn::LoadU(dh, w));
      odd = hn::PromoteTo(d, hn::LoadU(dh, w + kPanelOutputs));
    } else {
      const auto* w = reinterpret_cast<const std::uint8_t*>(at) + lane;
      even = f8(w, scale);
      odd = f8(w + kPanelOutputs, scale);
    }
  }

  // E4M3 moved into the bits of a half is 2^8 times too small (exponent biases 7 and 15), subnormals included.
  static HWY_INLINE V f8(const std::uint8_t* w, V scale) {
    const F32 d;
    const hn::Rebind<std::uint8_t, F32> d8;
    const hn::Rebind<std::uint16_t, F32> d16;
    const hn::Rebind<hwy::float16_t, F32> dh;
    const auto bits = hn::PromoteTo(d16, hn::LoadU(d8, w));
    const auto sign = hn::ShiftLeft<8>(hn::And(bits, hn::Set(d16, 0x80)));
    const auto rest = hn::ShiftLeft<7>(hn::And(bits, hn::Set(d16, 0x7F)));
    const auto value = hn::Mul(hn::PromoteTo(d, hn::BitCast(dh, hn::Or(sign, rest))), hn::Set(d, 256.0F));
    return hn::Mul(value, scale);
  }
};

struct Panel {
  const std::byte* data;
  const float* scales;
};

template <DType kType>
HWY_INLINE Panel panel_at(const PanelProduct& p, std::int64_t panel) {
  return {p.weights + static_cast<std::size_t>(panel) * panel_bytes(kType, p.inputs),
          kType == DType::kF8E4M3 ? p.scales + panel * scale_blocks(p.inputs) * kPanelOutputs : nullptr};
}

template <DType kType>
HWY_INLINE V scale_at(const Panel& panel, std::int64_t k, int lane) {
  const F32 d;
  if constexpr (kType == DType::kF8E4M3) return hn::LoadU(d, panel.scales + k / kScaleBlock * kPanelOutputs + lane);
  return hn::Zero(d);
}

// Sums of one panel (16 floats) to row `out`, with the bias, leaving out what lies beyond N.
HWY_INLINE void finish(const PanelProduct& p, std::int64_t panel, const float* sums, float* out) {
  const F32 d;
  const std::int64_t n = panel * kPanelOutputs;
  if (n + kPanelOutputs <= p.outputs) {
    for (int v = 0; v < kVectors; ++v) {
      auto sum = hn::Load(d, sums + v * kLanes);
      if (p.bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, p.bias + n + v * kLanes));
      hn::StoreU(sum, d, out + n + v * kLanes);
    }
    return;
  }
  for (std::int64_t i = n; i < p.outputs; ++i) out[i] = sums[i - n] + (p.bias != nullptr ? p.bias[i] : 0.0F);
}

constexpr int kTilePanels = kVectors == 1 ? kGroupPanels : 1;  // a tile: 24 sums in 32 registers, or 12 in 16
constexpr int kTileRows = 6;
constexpr int kAhead = 2048;  // bytes of a panel to prefetch ahead: a few hundred cycles of its stream

// A few rows straight from the packed weights: every input is widened once and meets kRows rows. The chains of different
// panels and rows hide each other's latency.
template <DType kType, int kRows, int kPanels>
void direct(const PanelProduct& p, std::int64_t first) {
  const F32 d;
  using Type = Decode<kType>;
  Panel panels[kPanels];
  V sum[kRows][kPanels * kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kPanels; ++i) panels[i] = panel_at<kType>(p, first + i);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kPanels * kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (std::int64_t block = 0; block < p.inputs; block += kScaleBlock) {
    const std::int64_t end = block + kScaleBlock < p.inputs ? block + kScaleBlock : p.inputs;
    std::int64_t k = block;
    for (; k + 1 < end; k += 2) {
      HWY_UNROLL(8)
      for (int v = 0; v < kPanels * kVectors; ++v) {
        const Panel& panel = panels[v / kVectors];
        const std::byte* at = panel.data + k / 2 * Type::kPairBytes;
        const int lane = v % kVectors * kLanes;
        if (lane == 0) hwy::Prefetch(at + kAhead);
        V even, odd;
        Type::pair(at, lane, scale_at<kType>(panel, block, lane), even, odd);
        HWY_UNROLL(8)
        for (int r = 0; r < kRows; ++r) {
          sum[r][v] = hn::MulAdd(even, hn::Set(d, p.x[r][k]), sum[r][v]);
          sum[r][v] = hn::MulAdd(odd, hn::Set(d, p.x[r][k + 1]), sum[r][v]);
        }
      }
    }
    if (k == end) continue;
    HWY_UNROLL(8)
    for (int v = 0; v < kPanels * kVectors; ++v) {
      const Panel& panel = panels[v / kVectors];
      const int lane = v % kVectors * kLanes;
      V even, odd;
      Type::pair(panel.data + k / 2 * Type::kPairBytes, lane, scale_at<kType>(panel, block, lane), even, odd);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(even, hn::Set(d, p.x[r][k]), sum[r][v]);
    }
  }
  HWY_ALIGN float sums[kRows][kPanels * kPanelOutputs];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kPanels * kVectors; ++v) hn::Store(sum[r][v], d, sums[r] + v * kLanes);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kPanels; ++i) finish(p, first + i, sums[r] + i * kPanelOutputs, p.out[r]);
  }
}

template <DType kType, int kRows>
void few_rows(const PanelProduct& p) {
  constexpr int kWide = kRows > 1 ? kTilePanels : kVectors == 1 ? 8 : 4;  // AVX2 and NEON have fewer or narrower registers
  std::int64_t i = p.first_panel;
  const std::int64_t end = p.first_panel + p.panels;
  for (; i + kWide <= end; i += kWide) direct<kType, kRows, kWide>(p, i);
  if constexpr (kWide > 2) {
    for (; i + 2 <= end; i += 2) direct<kType, kRows, 2>(p, i);
  }
  for (; i < end; ++i) direct<kType, kRows, 1>(p, i);
}

constexpr int kBlockInputs = kScaleBlock;                 // inputs widened at a time: with 4 panels 32 KiB, in L1

// weights [kBlockInputs][kTilePanels * 16] widened; sums of row r at sums + r * kGroupOutputs.
constexpr int kGroupOutputs = kGroupPanels * kPanelOutputs;
constexpr int kTileVectors = kTilePanels * kVectors;

// The block of weights that comes next, fetched by a tile as it goes: `step` bytes of each panel an input, 0 = none.
struct Ahead {
  const std::byte* panel[kTilePanels];
  int step;
};

template <int kRows>
void tile(const float* const* x, std::int64_t k0, int inputs, const float* weights, float* sums, const Ahead& ahead) {
  const F32 d;
  V sum[kRows][kTileVectors];
  const float* xs[kRows];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    xs[r] = x[r] + k0;
    HWY_UNROLL(8)
    for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::Load(d, sums + r * kGroupOutputs + v * kLanes);
  }
  for (int k = 0; k < inputs; ++k) {
    if (ahead.step > 0) {
      for (int i = 0; i < kTilePanels; ++i) __builtin_prefetch(ahead.panel[i] + k * ahead.step, 0, 2);
    }
    V w[kTileVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kTileVectors; ++v) w[v] = hn::Load(d, weights + k * kTilePanels * kPanelOutputs + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const auto a = hn::Set(d, xs[r][k]);
      HWY_UNROLL(8)
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::MulAdd(w[v], a, sum[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kTileVectors; ++v) hn::Store(sum[r][v], d, sums + r * kGroupOutputs + v * kLanes);
  }
}

// `block_bytes` of each panel lie at ahead.panel, to be fetched by the first few tiles.
void tiles(const PanelProduct& p, std::int64_t k0, int inputs, const float* weights, float* sums, Ahead ahead, int block_bytes) {
  const int fetching = p.rows > 4 * kTileRows ? 4 : (p.rows + kTileRows - 1) / kTileRows;
  ahead.step = block_bytes / (fetching * kBlockInputs);
  for (int r = 0; r < p.rows; r += kTileRows) {
    float* s = sums + r * kGroupOutputs;
    switch (p.rows - r) {
      case 1: tile<1>(p.x + r, k0, inputs, weights, s, ahead); break;
      case 2: tile<2>(p.x + r, k0, inputs, weights, s, ahead); break;
      case 3: tile<3>(p.x + r, k0, inputs, weights, s, ahead); break;
      case 4: tile<4>(p.x + r, k0, inputs, weights, s, ahead); break;
      case 5: tile<5>(p.x + r, k0, inputs, weights, s, ahead); break;
      default: tile<6>(p.x + r, k0, inputs, weights, s, ahead); break;
    }
    for (const std::byte*& panel : ahead.panel) panel += ahead.step * kBlockInputs;
    if (r / kTileRows + 1 == fetching) ahead.step = 0;
  }
}

// Inputs [k0, k0 + inputs) of kTilePanels panels, widened to [inputs][kTilePanels * 16]; missing panels are zeros.
template <DType kType>
void widen(const PanelProduct& p, std::int64_t first, std::int64_t end, std::int64_t k0, int inputs, float* to) {
  const F32 d;
  using Type = Decode<kType>;
  constexpr int kRow = kTilePanels * kPanelOutputs;
  for (int i = 0; i < kTilePanels; ++i) {
    if (first + i >= end) {
      for (int k = 0; k < inputs; ++k) {
        for (int v = 0; v < kVectors; ++v) hn::Store(hn::Zero(d), d, to + k * kRow + i * kPanelOutputs + v * kLanes);
      }
      continue;
    }
    const Panel panel = panel_at<kType>(p, first + i);
    const std::byte* at = panel.data + k0 / 2 * Type::kPairBytes;
    for (int v = 0; v < kVectors; ++v) {
      const V scale = scale_at<kType>(panel, k0, v * kLanes);
      float* column = to + i * kPanelOutputs + v * kLanes;
      for (int k = 0; k < inputs; k += 2) {  // of an odd count the last pair's second half is the zero column
        V even, odd;
        Type::pair(at + k / 2 * Type::kPairBytes, v * kLanes, scale, even, odd);
        hn::Store(even, d, column + k * kRow);
        hn::Store(odd, d, column + (k + 1) * kRow);
      }
    }
  }
}

template <DType kType>
void many_rows(const PanelProduct& p) {
  HWY_ALIGN float weights[kBlockInputs * kTilePanels * kPanelOutputs];
  HWY_ALIGN float sums[kBlockRows * kGroupOutputs];
  const F32 d;
  const std::int64_t end = p.first_panel + p.panels;
  for (std::int64_t first = p.first_panel; first < end; first += kTilePanels) {
    for (int r = 0; r < p.rows; ++r) {
      for (int v = 0; v < kTileVectors; ++v) hn::Store(hn::Zero(d), d, sums + r * kGroupOutputs + v * kLanes);
    }
    for (std::int64_t k0 = 0; k0 < p.inputs; k0 += kBlockInputs) {
      const int inputs = static_cast<int>(k0 + kBlockInputs < p.inputs ? kBlockInputs : p.inputs - k0);
      widen<kType>(p, first, end, k0, inputs, weights);
      constexpr int kBlockBytes = kBlockInputs / 2 * Decode<kType>::kPairBytes;
      Ahead ahead{};
      for (int i = 0; i < kTilePanels; ++i) ahead.panel[i] = panel_at<kType>(p, first + i).data + (k0 / kBlockInputs + 1) * kBlockBytes;
      tiles(p, k0, inputs, weights, sums, ahead, kBlockBytes);
    }
    for (int i = 0; i < kTilePanels && first + i < end; ++i) {
      for (int r = 0; r < p.rows; ++r) finish(p, first + i, sums + r * kGroupOutputs + i * kPanelOutputs, p.out[r]);
    }
  }
}

template <DType kType>
void product_of(const PanelProduct& p) {
  switch (p.rows) {
    case 1: few_rows<kType, 1>(p); break;
    case 2: few_rows<kType, 2>(p); break;
    case 3: few_rows<kType, 3>(p); break;
    case 4: few_rows<kType, 4>(p); break;
    case 5: few_rows<kType, 5>(p); break;
    case 6: few_rows<kType, 6>(p); break;
    default: many_rows<kType>(p); break;
  }
}

void product(const PanelProduct& p) {
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  panel_product_scalar(p);  // no fused multiply-add in the vector unit
#else
  switch (p.dtype) {
    case DType::kBF16: product_of<DType::kBF16>(p); break;
    case DType::kF16: product_of<DType::kF16>(p); break;
    case DType::kF8E4M3: product_of<DType::kF8E4M3>(p); break;
    default: product_of<DType::kF32>(p); break;
  }
#endif
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {
HWY_EXPORT(product);
void panel_product(const PanelProduct& product) { HWY_DYNAMIC_DISPATCH(product)(product); }
}  // namespace strata::cpu
#endif
