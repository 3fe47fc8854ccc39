#include "ops/cpu/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/kv_convert.h"
#include "ops/cpu/simd_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention_kernel.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/simd_math-inl.h"

#ifndef STRATA_ATTENTION_KERNEL_ONCE
#define STRATA_ATTENTION_KERNEL_ONCE
namespace strata {

constexpr int kKeyBlock = 32;  // keys that lie together by channel: what the registers take at a time

// The keys of a page some query sees: [begin, end) of its kPageTokens; keys [kPageTokens / kKeyBlock, Dh,
// kKeyBlock]; values [kPageTokens, Dv].
struct StagedPage {
  int begin, end;
  float* keys;
  const float* values;
  std::int64_t values_stride;
};

// 0, 1, 2, ... as floats. (GCC 12 miscompiles Highway 1.0.3's Iota of 16 floats at -O3.)
struct KeyNumbers {
  alignas(64) float at[kPageTokens];
  constexpr KeyNumbers() : at() {
    for (int i = 0; i < kPageTokens; ++i) at[i] = static_cast<float>(i);
  }
};
inline constexpr KeyNumbers kKeyNumbers;

}  // namespace strata
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace {

using F32 = hn::CappedTag<float, 16>;
using V = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kRegisterVectors = 2;                  // of keys or columns
constexpr int kRegisterRows = kLanes == 16 ? 8 : 4;  // queries; their sums take 16 of 32 or 8 of 16 registers

// to[i, j] = from[j, i] for `rows` (a multiple of 4) rows of `from`; `to` has rows of kKeyBlock. Four
// channels of all rows at a time, so that what is written are whole cache lines.
HWY_INLINE void transpose_keys(const float* from, std::int64_t stride, int rows, std::int64_t dim,
                               float* to) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> pair;
  for (; i + 4 <= dim; i += 4) {
    for (int j = 0; j < rows; j += 4) {
      const float* x = from + j * stride + i;
      const auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + stride), c = hn::LoadU(d, x + 2 * stride),
                 e = hn::LoadU(d, x + 3 * stride);
      const auto ab = hn::BitCast(pair, hn::InterleaveLower(d, a, b)),
                 ab2 = hn::BitCast(pair, hn::InterleaveUpper(d, a, b)),
                 ce = hn::BitCast(pair, hn::InterleaveLower(d, c, e)),
                 ce2 = hn::BitCast(pair, hn::InterleaveUpper(d, c, e));
      float* y = to + i * kKeyBlock + j;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(pair, ab, ce)), d, y);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(pair, ab, ce)), d, y + kKeyBlock);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(pair, ab2, ce2)), d, y + 2 * kKeyBlock);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(pair, ab2, ce2)), d, y + 3 * kKeyBlock);
    }
  }
#endif
  for (; i < dim; ++i) {
    for (int j = 0; j < rows; ++j) to[i * kKeyBlock + j] = from[j * stride + i];
  }
}

// scores[r, key] = q[r] . keys[:, key] for kRows queries and two vectors of keys, channels in order.
template <int kRows>
HWY_INLINE void score_rows(const float* const* q, const float* keys, std::int64_t dim, float* scores) {
  const F32 d;
  V sum[kRows][kRegisterVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kRegisterVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < dim; ++i) {
    const V k0 = hn::Load(d, keys + i * kKeyBlock), k1 = hn::Load(d, keys + i * kKeyBlock + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, q[r][i]);
      sum[r][0] = hn::MulAdd(x, k0, sum[r][0]);
      sum[r][1] = hn::MulAdd(x, k1, sum[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kRegisterVectors; ++v) hn::Store(sum[r][v], d, scores + r * kPageTokens + v * kLanes);
  }
}

// sums[r] += sum over keys of weights[r, key] values[key], keys in order, for kVectors vectors of columns.
template <int kRows, int kVectors>
HWY_INLINE void weigh_rows(const float* weights, int begin, int end, const float* values,
                           std::int64_t values_stride, float* sums, std::int64_t stride) {
  const F32 d;
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, sums + r * stride + v * kLanes);
  }
  for (int key = begin; key < end; ++key) {
    V x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, values + key * values_stride + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V w = hn::Set(d, weights[r * kPageTokens + key]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(w, x[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, sums + r * stride + v * kLanes);
  }
}

// Calls f with the number of rows as a constant.
template <int kRows = kRegisterRows, typename F>
HWY_INLINE void with_rows(int rows, F f) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return f(std::integral_constant<int, kRows>());
    with_rows<kRows - 1>(rows, f);
  }
}

void score_page(const AttentionTile& tile, const StagedPage& page, float* scores) {
  for (int first = 0; first < tile.queries; first += kRegisterRows) {
    with_rows(std::min(kRegisterRows, tile.queries - first), [&](auto rows) {
      constexpr int kKeys = kRegisterVectors * kLanes;
      for (int key = page.begin / kKeys * kKeys; key < page.end; key += kKeys) {
        score_rows<decltype(rows)::value>(
            tile.q + first, page.keys + key / kKeyBlock * kKeyBlock * tile.head_dim + key % kKeyBlock,
            tile.head_dim, scores + first * kPageTokens + key);
      }
    });
  }
}

// Turns the scores of a page into weights exp(score - most), where [begin, end) is what the query sees of it,
// and makes room for them in the sums so far.
void weigh_page(const AttentionTile& tile, int query, int begin, int end, float* scores,
                const AttentionSums& sums) {
  const F32 d;
  const V low = hn::Set(d, static_cast<float>(begin)), high = hn::Set(d, static_cast<float>(end));
  const V scale = hn::Set(d, tile.scale), none = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto seen = [&](int key) {
    const V at = hn::Load(d, kKeyNumbers.at + key);
    return hn::And(hn::Ge(at, low), hn::Lt(at, high));
  };
  V most = none;
  for (int key = 0; key < kPageTokens; key += kLanes) {
    V score = hn::Mul(hn::Load(d, scores + key), scale);
    if (tile.softcap != 0) score = softcap_of(d, score, tile.softcap);
    score = hn::IfThenElse(seen(key), score, none);
    hn::Store(score, d, scores + key);
    most = hn::Max(score, most);
  }
  const float before = sums.most[query], now = std::max(before, hn::GetLane(hn::MaxOfLanes(d, most)));
  if (now > before) {
    const float factor = std::exp(before - now);
    float* values = sums.values + query * value_stride(tile.value_dim);
    for (std::int64_t i = 0; i < tile.value_dim; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, values + i), hn::Set(d, factor)), d, values + i);
    }
    sums.sum[query] *= factor;
    sums.most[query] = now;
  }
  V total = hn::Zero(d);
  for (int key = 0; key < kPageTokens; key += kLanes) {
    const V weight =
        hn::IfThenElseZero(seen(key), exp_of(d, hn::Sub(hn::Load(d, scores + key), hn::Set(d, now))));
    hn::Store(weight, d, scores + key);
    total = hn::Add(total, weight);
  }
  sums.sum[query] += hn::GetLane(hn::SumOfLanes(d, total));
}

// Adds the values of keys [begin, end) to `rows` queries from `first`.
void add_values(const AttentionTile& tile, const StagedPage& page, int first, int rows, int begin, int end,
                const float* scores, const AttentionSums& sums) {
  if (begin >= end) return;
  const std::int64_t stride = value_stride(tile.value_dim);
  const float* weights = scores + first * kPageTokens;
  float* to = sums.values + first * stride;
  with_rows(rows, [&](auto count) {
    constexpr int kRows = decltype(count)::value;
    std::int64_t i = 0;
    for (; i + kRegisterVectors * kLanes <= tile.value_dim; i += kRegisterVectors * kLanes) {
      weigh_rows<kRows, kRegisterVectors>(weights, begin, end, page.values + i, page.values_stride, to + i,
                                          stride);
    }
    for (; i < tile.value_dim; i += kLanes) {
      weigh_rows<kRows, 1>(weights, begin, end, page.values + i, page.values_stride, to + i, stride);
    }
  });
}

}  // namespace

void transpose_page(const float* from, std::int64_t stride, const StagedPage& page, std::int64_t dim) {
  for (int block = 0; block < kPageTokens; block += kKeyBlock) {
    const int begin = std::max(page.begin / 4 * 4, block),
              end = std::min((page.end + 3) / 4 * 4, block + kKeyBlock);
    if (begin >= end) continue;
    transpose_keys(from + begin * stride, stride, end - begin, dim, page.keys + block * dim + begin - block);
  }
}

// A page whose first key has position `base`.
void attend_page(const AttentionTile& tile, int base, const StagedPage& page, float* scores,
                 const AttentionSums& sums) {
  score_page(tile, page, scores);
  int begin[kTileQueries], end[kTileQueries];
  for (int i = 0; i < tile.queries; ++i) {
    begin[i] = std::max(tile.low[i] - base, 0);
    end[i] = std::min(tile.high[i] - base, kPageTokens);
    if (begin[i] < end[i]) weigh_page(tile, i, begin[i], end[i], scores + i * kPageTokens, sums);
  }
  for (int first = 0; first < tile.queries; first += kRegisterRows) {
    const int rows = std::min(kRegisterRows, tile.queries - first);
    // What all of them see is added together, what lies before and after one by one: each query's keys stay
    // in order.
    const int common = *std::max_element(begin + first, begin + first + rows);
    const int last = std::max(common, *std::min_element(end + first, end + first + rows));
    for (int i = first; i < first + rows; ++i)
      add_values(tile, page, i, 1, begin[i], std::min(common, end[i]), scores, sums);
    add_values(tile, page, first, rows, common, last, scores, sums);
    for (int i = first; i < first + rows; ++i)
      add_values(tile, page, i, 1, std::max(begin[i], last), end[i], scores, sums);
  }
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
HWY_EXPORT(transpose_page);
HWY_EXPORT(attend_page);
namespace {

// Rows of a page as floats: [kPageTokens] of `dim`, from the element of head `head`. Points into the page
// when it can.
struct FloatRows {
  const float* at;
  std::int64_t stride;
};

FloatRows float_rows(const Tensor& pages, std::int64_t number, std::int64_t head, std::int64_t dim, int begin,
                     int end, bool copy, float* scratch) {
  const std::int64_t entry = pages[2] * pages[3];
  const std::byte* from = kv_entry(pages, number * kPageTokens) + bytes_of(pages.dtype(), head * pages[3]);
  if (pages.dtype() == DType::kF32 && !copy) return {reinterpret_cast<const float*>(from), entry};
  const std::int64_t stride = value_stride(dim);
  for (int key = begin; key < end; ++key) {
    const std::byte* row = from + bytes_of(pages.dtype(), key * entry);
    if (pages.dtype() == DType::kF32) {
      load_kv(DType::kF32, scratch + key * stride, row, 0, dim);
    } else {
      simd::widen_row(pages.dtype(), scratch + key * stride, row, dim);
    }
  }
  return {scratch, stride};
}

// Asks for rows of a page ahead of their use: with heads side by side they lie too far apart for the hardware
// to see.
void prefetch_rows(const Tensor& pages, std::int64_t number, std::int64_t head, std::int64_t dim, int begin,
                   int end) {
  const auto entry = static_cast<std::int64_t>(bytes_of(pages.dtype(), pages[2] * pages[3]));
  const auto bytes = static_cast<std::int64_t>(bytes_of(pages.dtype(), dim));
  const std::byte* from = kv_entry(pages, number * kPageTokens) + bytes_of(pages.dtype(), head * pages[3]);
  for (int key = begin; key < end; ++key) {
    for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + key * entry + at);
  }
}

}  // namespace

std::size_t attend_scratch(const AttentionTile& tile) {
  // scores, keys by channel, keys and values as floats
  return static_cast<std::size_t>(
      kPageTokens * (kTileQueries + value_stride(tile.head_dim) * 2 + value_stride(tile.value_dim)));
}

void attend_span(const AttentionTile& tile, int span, const AttentionSums& sums, float* scratch) {
  const std::int64_t stride = value_stride(tile.value_dim);
  std::fill_n(sums.values, tile.queries * stride, 0.0F);
  std::fill_n(sums.most, tile.queries, -std::numeric_limits<float>::infinity());
  std::fill_n(sums.sum, tile.queries, 0.0F);
  float* scores = scratch;
  float* keys = scores + kPageTokens * kTileQueries;
  float* key_rows = keys + kPageTokens * value_stride(tile.head_dim);
  float* value_rows = key_rows + kPageTokens * value_stride(tile.head_dim);
  const int low = std::max(*std::min_element(tile.low, tile.low + tile.queries), span * kSpanTokens);
  const int high = std::min(*std::max_element(tile.high, tile.high + tile.queries), (span + 1) * kSpanTokens);
  const KvView& kv = *tile.kv;
  for (int base = low / kPageTokens * kPageTokens; base < high; base += kPageTokens) {
    const std::int64_t number = tile.pages[base / kPageTokens];
    StagedPage page{std::max(low - base, 0), std::min(high - base, kPageTokens), keys, nullptr, 0};
    const FloatRows k = float_rows(kv.k, number, tile.kv_head, tile.head_dim, page.begin / 4 * 4,
                                   (page.end + 3) / 4 * 4, false, key_rows);
    if (!kv.v.empty()) prefetch_rows(kv.v, number, tile.kv_head, tile.value_dim, page.begin, page.end);
    HWY_DYNAMIC_DISPATCH(transpose_page)(k.at, k.stride, page, tile.head_dim);
    if (const int next = base + kPageTokens; next < high) {
      prefetch_rows(kv.k, tile.pages[next / kPageTokens], tile.kv_head, tile.head_dim, 0,
                    std::min(high - next, kPageTokens));
    }
    FloatRows v = k;
    // Whole vectors of values are read: rows that are not whole cache lines are copied apart.
    const bool ragged = tile.value_dim != stride;
    if (!kv.v.empty()) {
      v = float_rows(kv.v, number, tile.kv_head, tile.value_dim, page.begin, page.end, ragged, value_rows);
    } else if (ragged) {
      v = float_rows(kv.k, number, tile.kv_head, tile.value_dim, page.begin, page.end, true, value_rows);
    }
    page.values = v.at;
    page.values_stride = v.stride;
    HWY_DYNAMIC_DISPATCH(attend_page)(tile, base, page, scores, sums);
  }
}

}  // namespace strata
#endif  // HWY_ONCE
