// Quantised products with AVX2 alone. A few rows are multiplied straight from the packed weights, at the
// speed of memory; for many rows a stretch of a panel is widened to bytes once and meets the rows in tiles,
// at the speed of the multipliers.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/panel_product.h"
#include "ops/cpu/quant_product.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace strata::cpu {
namespace {

#include "ops/cpu/quant_avx2.h"
#include "ops/cpu/quantize_rows_avx2.h"

// vpmaddubsw adds two products in 16 bits: exact while the unsigned side is at most 127 (or 128 against 127).
constexpr bool kFullUnsigned = false;
// The compiler must take each sum as it comes: it would else rearrange a chain of additions into a tree whose
// leaves it has to spill.
inline __m256i keep(__m256i sum) {
  asm("" : "+x"(sum));
  return sum;
}
inline I32 pairs(I32 sum, __m256i products) { return (I32)keep(_mm256_add_epi32((__m256i)sum, products)); }
inline __m256i widen_pairs(__m256i products) { return _mm256_madd_epi16(products, _mm256_set1_epi16(1)); }
inline I32 dot(I32 sum, U8 w, int x) {
  return pairs(sum, widen_pairs(_mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32(x))));
}
inline I32 dot_signed(I32 sum, U8 w, int x) {  // |w| times x with the sign of w
  const __m256i size = _mm256_abs_epi8((__m256i)w),
                turned = _mm256_sign_epi8(_mm256_set1_epi32(x), (__m256i)w);
  return pairs(sum, widen_pairs(_mm256_maddubs_epi16(size, turned)));
}

#include "ops/cpu/quant_decode.h"

constexpr int kAhead = 2048;        // bytes of a panel fetched ahead of their use
constexpr int kBlockInputs = 1024;  // of a widened stretch: its 16 KiB, scales and a tile's rows stay in L1
constexpr int kDirectRows = 3;      // up to here rows meet the packed weights

// What a tile's code depends on: types that differ in their packing alone share it.
struct Form {
  int fit;    // quads whose products 16 bits can sum; 0: codes are signed bytes, which fill 16 bits alone
  int group;  // inputs that share a scale
  bool offset, biased;

  constexpr int quads() const { return group / 4; }
  // A tile's rows: its sums of one group are 10 of 16 registers, or 6 where other things need more.
  constexpr int rows() const { return fit == quads() ? 5 : 3; }
};

template <DType kType>
constexpr Form form_of() {
  constexpr QuantLayout kLayout = quant_layout(kType);
  const int quads = kLayout.group / 4, fit = 32767 / (2 * 127 * ((1 << (kLayout.low + kLayout.high)) - 1));
  return {Kind<kType>::kByteCodes ? 0
          : fit >= quads          ? quads
          : fit >= 4              ? 4
                                  : 2,
          kLayout.group, kLayout.offset, Kind<kType>::kBias != 0};
}

// A stretch of a panel as the packed weights have it.
template <DType kType>
struct Packed {
  const std::byte* units;
  U8 table;

  static constexpr QuantLayout kLayout = quant_layout(kType);
  const std::byte* unit(std::int64_t k) const { return units + k / kLayout.unit * kLayout.unit_bytes(); }
  const std::byte* codes(std::int64_t k) const {
    return unit(k) + kLayout.scale_bytes() + k % kLayout.unit / 32 * kLayout.code_bytes();
  }
  U8 quad(const std::byte* codes, int q, int v) const { return Kind<kType>::quad(codes, q, v, table); }
  F32 scale(std::int64_t g, int v) const {
    return scale_of<kType>(unit(g * kLayout.group), static_cast<int>(g) % kLayout.groups(), v);
  }
  F32 offset(std::int64_t g, int v) const {
    return offset_of<kType>(unit(g * kLayout.group), static_cast<int>(g) % kLayout.groups(), v);
  }
  void fetch(const std::byte* codes) const {
    for (int b = 0; b < kLayout.code_bytes() + kLayout.scale_bytes() * 32 / kLayout.unit; b += 64)
      __builtin_prefetch(codes + kAhead + b);
  }
};

// The same widened: codes [K / 4][64], scales and offsets [K / group][16].
struct Widened {
  std::byte* bytes;
  F32* scales;
  F32* offsets;

  const std::byte* codes(std::int64_t k) const { return bytes + k * kPanelOutputs; }
  U8 quad(const std::byte* codes, int q, int v) const { return load(codes + q * 64 + v * kBytes); }
  F32 scale(std::int64_t g, int v) const { return scales[g * kVectors + v]; }
  F32 offset(std::int64_t g, int v) const { return offsets[g * kVectors + v]; }
  void fetch(const std::byte*) const {}
};

template <DType kType>
void widen(const Packed<kType>& from, std::int64_t inputs, const Widened& to) {
  for (std::int64_t k = 0; k < inputs; k += 32) {
    const std::byte* codes = from.codes(k);
    std::byte* out = to.bytes + k * kPanelOutputs;
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      for (int v = 0; v < kVectors; ++v) {
        const U8 w = from.quad(codes, q, v);
        std::memcpy(out + q * 64 + v * kBytes, &w, sizeof(w));
      }
    }
    from.fetch(codes);
  }
  for (std::int64_t g = 0; g < inputs / Packed<kType>::kLayout.group; ++g) {
    for (int v = 0; v < kVectors; ++v) {
      to.scales[g * kVectors + v] = from.scale(g, v);
      if constexpr (Packed<kType>::kLayout.offset) to.offsets[g * kVectors + v] = from.offset(g, v);
    }
  }
}

// The integer dot products of group g with kRows rows; `codes` are those of its 32 inputs, of which it begins
// at quad `first`.
template <Form kForm, int kRows, typename Source>
inline void group_dots(const Source& w, const std::byte* codes, int first, const std::int8_t* x,
                       std::int64_t stride, I32 (&dots)[kRows][kVectors]) {
  constexpr int kFit = kForm.fit, kQuads = kForm.quads();
  if constexpr (kFit == 0) {
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) {
      const U8 w0 = w.quad(codes, first + i, 0), w1 = w.quad(codes, first + i, 1);
      const __m256i size0 = _mm256_abs_epi8((__m256i)w0), size1 = _mm256_abs_epi8((__m256i)w1);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int four;
        std::memcpy(&four, x + r * stride + i * 4, 4);
        const __m256i all_x = _mm256_set1_epi32(four);
        const __m256i p0 = widen_pairs(_mm256_maddubs_epi16(size0, _mm256_sign_epi8(all_x, (__m256i)w0)));
        const __m256i p1 = widen_pairs(_mm256_maddubs_epi16(size1, _mm256_sign_epi8(all_x, (__m256i)w1)));
        dots[r][0] = i == 0 ? (I32)p0 : pairs(dots[r][0], p0);
        dots[r][1] = i == 0 ? (I32)p1 : pairs(dots[r][1], p1);
      }
    }
    return;
  }
  constexpr int kStep = kFit == 0 ? 1 : kFit;
#pragma GCC unroll 4
  for (int from = 0; from < kQuads; from += kStep) {
    __m256i sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kStep; ++i) {
      const U8 w0 = w.quad(codes, first + from + i, 0), w1 = w.quad(codes, first + from + i, 1);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int four;
        std::memcpy(&four, x + r * stride + (from + i) * 4, 4);
        const __m256i all_x = _mm256_set1_epi32(four);
        const __m256i p0 = _mm256_maddubs_epi16((__m256i)w0, all_x),
                      p1 = _mm256_maddubs_epi16((__m256i)w1, all_x);
        sum[r][0] = i == 0 ? p0 : keep(_mm256_add_epi16(sum[r][0], p0));
        sum[r][1] = i == 0 ? p1 : keep(_mm256_add_epi16(sum[r][1], p1));
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        const __m256i wide = widen_pairs(sum[r][v]);
        dots[r][v] = from == 0 ? (I32)wide : pairs(dots[r][v], wide);
      }
    }
  }
}

// Adds the products of kRows rows with inputs [k0, k0 + inputs) of a panel to sums [kRows][16].
template <Form kForm, int kRows, typename Source>
void tile(const Source& w, const QuantRows& x, std::int64_t k0, std::int64_t inputs, float* sums) {
  F32 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = (F32)_mm256_load_ps(sums + r * kPanelOutputs + v * kLanes);
  }
  for (std::int64_t k = 0; k < inputs; k += 32) {
    const std::byte* codes = w.codes(k);
    const float* row_scale = x.scale + (k0 + k) / 32 * x.stride;
#pragma GCC unroll 2
    for (int half = 0; half < 32 / kForm.group; ++half) {
      const std::int64_t g = k / kForm.group + half, at = (k0 / kForm.group + g) * x.stride;
      I32 dots[kRows][kVectors];
      group_dots<kForm, kRows>(w, codes, half * 4, x.codes + k0 + k + half * 16, x.inputs, dots);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const F32 scale = w.scale(g, v);
        F32 offset{};
        if constexpr (kForm.offset) offset = w.offset(g, v);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          I32 dot = dots[r][v];
          if constexpr (kForm.biased) dot += I32{} + x.start[at + r];
          sum[r][v] = fma((F32)_mm256_cvtepi32_ps((__m256i)dot), scale * all(row_scale[r]), sum[r][v]);
          if constexpr (kForm.offset) sum[r][v] = fma(offset, all(x.shift[at + r]), sum[r][v]);
        }
      }
    }
    w.fetch(codes);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      _mm256_store_ps(sums + r * kPanelOutputs + v * kLanes, (__m256)sum[r][v]);
  }
}

// The same for any number of rows, by tiles of kRows and smaller ones for the rest.
template <Form kForm, int kRows, typename Source>
void tiles(int rows, const Source& w, const QuantRows& x, std::int64_t k0, std::int64_t inputs, float* sums) {
  int r = 0;
  for (; r + kRows <= rows; r += kRows)
    tile<kForm, kRows>(w, x.from(r), k0, inputs, sums + r * kPanelOutputs);
  if constexpr (kRows > 1) {
    if (r < rows)
      tiles<kForm, kRows == 3 ? 1 : kRows / 2>(rows - r, w, x.from(r), k0, inputs, sums + r * kPanelOutputs);
  }
}

// Sums of a row to its outputs of panel `panel`, with the bias.
void write(const QuantProduct& p, std::int64_t panel, const float* sums, float* out) {
  const std::int64_t n = panel * kPanelOutputs, count = std::min<std::int64_t>(kPanelOutputs, p.outputs - n);
  if (count < kPanelOutputs) {
    for (std::int64_t i = 0; i < count; ++i)
      out[n + i] = p.bias != nullptr ? sums[i] + p.bias[n + i] : sums[i];
    return;
  }
  for (int v = 0; v < kVectors; ++v) {
    __m256 sum = _mm256_load_ps(sums + v * kLanes);
    if (p.bias != nullptr) sum = _mm256_add_ps(sum, _mm256_loadu_ps(p.bias + n + v * kLanes));
    _mm256_storeu_ps(out + n + v * kLanes, sum);
  }
}

template <DType kType>
void product_of(const QuantProduct& p) {
  constexpr QuantLayout kLayout = quant_layout(kType);
  constexpr Form kForm = form_of<kType>();
  const std::int64_t inputs = p.x.inputs;
  alignas(64) float sums[kBlockRows * kPanelOutputs];
  alignas(64) std::byte bytes[kBlockInputs * kPanelOutputs];
  F32 scales[kBlockInputs / kLayout.group * kVectors],
      offsets[kLayout.offset ? kBlockInputs / kLayout.group * kVectors : 1];
  const Widened wide{bytes, scales, offsets};
  for (std::int64_t panel = p.first_panel; panel < p.first_panel + p.panels; ++panel) {
    Packed<kType> packed{p.weights + static_cast<std::size_t>(panel) * quant_panel_bytes(kType, inputs), {}};
    if constexpr (kLayout.table) packed.table = table_of(quant_table(kType).data(), Kind<kType>::kBias);
    std::fill_n(sums, p.rows * kPanelOutputs, 0.0F);
    if (p.rows <= kDirectRows) {
      if (p.rows == 3) tile<kForm, 3>(packed, p.x, 0, inputs, sums);
      if (p.rows == 2) tile<kForm, 2>(packed, p.x, 0, inputs, sums);
      if (p.rows == 1) tile<kForm, 1>(packed, p.x, 0, inputs, sums);
    } else {
      for (std::int64_t k0 = 0; k0 < inputs; k0 += kBlockInputs) {
        const std::int64_t count = std::min<std::int64_t>(kBlockInputs, inputs - k0);
        widen(Packed<kType>{packed.unit(k0), packed.table}, count, wide);
        tiles<kForm, kForm.rows()>(p.rows, wide, p.x, k0, count, sums);
      }
    }
    for (int r = 0; r < p.rows; ++r) write(p, panel, sums + r * kPanelOutputs, p.out[r]);
  }
}

#include "ops/cpu/quant_dispatch.h"

}  // namespace

const QuantKernels kQuantAvx2{"avx2", quantize, product};

}  // namespace strata::cpu
#pragma GCC pop_options
#endif
