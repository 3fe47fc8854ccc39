// prepare_qkv: norms, rotations and pages against the formula, for every kind of rotary table.
#include <gtest/gtest.h>

#include "ops/batch_fixture.h"
#include "ops/bodies.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kv_convert.h"
#include "ops/cpu/simd_rows.h"

namespace strata::testing {
namespace {

struct Case {
  int heads, kv_heads, head_dim, value_dim, rotated;  // value_dim 0: no v (MLA); rotated = pairs
  bool interleaved, norms, v_norm;
  std::array<int, 3> sections;
  bool sections_interleaved;
  float scale;
  DType dtype;
};

const Case kCases[] = {
    {4, 2, 16, 16, 8, false, true, false, {}, false, 1, DType::kF32},
    {7, 1, 20, 24, 5, false, false, true, {}, false, 1.3F, DType::kBF16},
    {2, 2, 64, 64, 32, true, true, true, {}, false, 1, DType::kF16},
    {2, 1, 256, 256, 32, false, true, false, {11, 11, 10}, true, 1, DType::kF8E4M3},
    {1, 1, 128, 128, 64, false, false, false, {16, 24, 24}, false, 1, DType::kF32},
    {3, 1, 40, 0, 0, false, true, false, {}, false, 1, DType::kF32},
};

struct Rotation {
  Rope rope;
  HostTensor inv_freq;
};

Rotation rotation_of(const Case& c) {
  Rotation r{{}, HostTensor({c.rotated})};
  for (int i = 0; i < c.rotated; ++i) {
    r.inv_freq.f32()[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / c.rotated));
  }
  r.rope = {.inv_freq = r.inv_freq,
            .scale = c.scale,
            .interleaved = c.interleaved,
            .mrope_section = c.sections,
            .mrope_interleaved = c.sections_interleaved};
  return r;
}

int stream_of(const Case& c, int i) {
  if (c.sections[0] == 0) return 0;
  if (!c.sections_interleaved) return i < c.sections[0] ? 0 : i < c.sections[0] + c.sections[1] ? 1 : 2;
  if (i % 3 == 1 && i < 3 * c.sections[1]) return 1;
  return i % 3 == 2 && i < 3 * c.sections[2] ? 2 : 0;
}

// One head in double.
std::vector<double> head_formula(const Case& c, const float* x, int n, const float* norm, bool rotate,
                                 const std::array<int, 3>& at, const HostTensor& inv_freq) {
  std::vector<double> y(x, x + n);
  if (norm != nullptr) {
    double sum = 0;
    for (const double v : y) sum += v * v;
    for (int i = 0; i < n; ++i) y[static_cast<std::size_t>(i)] *= norm[i] / std::sqrt(sum / n + 1e-6);
  }
  for (int i = 0; rotate && i < c.rotated; ++i) {
    const float angle = static_cast<float>(at[static_cast<std::size_t>(stream_of(c, i))]) * inv_freq.f32()[i];
    const double cosine = std::cos(static_cast<double>(angle)) * c.scale,
                 sine = std::sin(static_cast<double>(angle)) * c.scale;
    auto& a = y[static_cast<std::size_t>(c.interleaved ? 2 * i : i)];
    auto& b = y[static_cast<std::size_t>(c.interleaved ? 2 * i + 1 : i + c.rotated)];
    const double a0 = a;
    a = a0 * cosine - b * sine;
    b = b * cosine + a0 * sine;
  }
  return y;
}

class PrepareQkvTest : public BodyTest {};
STRATA_ON_EVERY_BODY(PrepareQkvTest);

TEST_P(PrepareQkvTest, MatchesTheFormulaAndWritesOnlyItsSlots) {
  const std::vector<int> lengths{70, 5};
  const PageTables tables(lengths, 3);
  const Step step{{.sequence = 1, .start = 2, .rows = 3},
                  {.sequence = 0, .rows = 2, .padding = true},
                  {.sequence = 0, .start = 60, .rows = 10}};
  for (const Case& c : kCases) {
    CpuOps ops({.threads = 3, .scalar = scalar()});
    const HostBatch host(step, tables);
    Batch batch = host.batch;
    const std::int64_t rows = batch.shape.rows, q_size = c.heads * c.head_dim,
                       k_size = c.kv_heads * c.head_dim, v_size = c.kv_heads * c.value_dim;
    HostTensor positions({3, rows}, DType::kI32);
    for (int t = 0; t < rows; ++t) {
      for (int stream = 0; stream < 3; ++stream)
        positions.view().row<int>(stream)[t] = 1000 * t + 17 * stream + 3;
    }
    batch.positions = c.sections[0] > 0 ? positions.view() : positions.view().rows_from(0, 1).reshape({rows});

    const HostTensor before = random_tensor({rows, q_size + k_size + v_size}, 5, 2);
    HostTensor after = before;
    const Tensor q = after.view().columns(0, q_size).reshape({rows, c.heads, c.head_dim});
    const Tensor k = after.view().columns(q_size, k_size).reshape({rows, c.kv_heads, c.head_dim});
    const Tensor v =
        v_size == 0 ? Tensor()
                    : after.view().columns(q_size + k_size, v_size).reshape({rows, c.kv_heads, c.value_dim});
    const HostTensor q_norm = random_tensor({c.head_dim}, 6, 0.2F, 1),
                     k_norm = random_tensor({c.head_dim}, 7, 0.2F, 1), v_norm = filled({c.value_dim}, 1);
    const Rotation r = rotation_of(c);
    const auto pages_of = [&](int dim) {
      HostTensor pages({tables.total, kPageTokens, c.kv_heads, dim}, c.dtype);
      std::fill_n(pages.view().raw(), pages.view().bytes(), std::byte{0x7E});
      return pages;
    };
    HostTensor k_pages = pages_of(c.head_dim), v_pages = v_size == 0 ? HostTensor() : pages_of(c.value_dim);
    const HostTensor k_untouched = k_pages;
    ops.prepare_qkv({.q = q,
                     .k = k,
                     .v = v,
                     .q_norm = c.norms ? q_norm.view() : Tensor(),
                     .k_norm = c.norms ? k_norm.view() : Tensor(),
                     .v_norm = c.v_norm && v_size > 0 ? v_norm.view() : Tensor(),
                     .eps = 1e-6F,
                     .rope = c.rotated > 0 ? &r.rope : nullptr,
                     .kv = {k_pages, v_pages, {}}},
                    batch);

    std::vector<bool> written(static_cast<std::size_t>(tables.total * kPageTokens), false);
    for (int t = 0; t < rows; ++t) {
      const std::array<int, 3> at{positions.view().row<int>(0)[t], positions.view().row<int>(1)[t],
                                  positions.view().row<int>(2)[t]};
      const int slot = batch.kv_slots.data<int>()[t];
      if (slot >= 0) written[static_cast<std::size_t>(slot)] = true;
      const auto expect = [&](const char* what, std::int64_t column, int heads, int dim,
                              const HostTensor* norm, bool rotate, const HostTensor* pages) {
        for (int h = 0; h < heads; ++h) {
          const std::int64_t offset = column + h * dim;
          const auto expected =
              head_formula(c, before.view().row<float>(t) + offset, dim,
                           norm != nullptr ? norm->f32() : nullptr, rotate && c.rotated > 0, at, r.inv_freq);
          const float* got = after.view().row<float>(t) + offset;
          ASSERT_LT(largest_error(got, expected.data(), dim), 1e-5) << what << " row " << t << " head " << h;
          if (pages == nullptr || slot < 0) continue;
          HostTensor one({dim}, c.dtype);
          store_kv(c.dtype, one.view().raw(), 0, got, dim);
          const std::byte* held = kv_entry(*pages, slot) + bytes_of(c.dtype, h * dim);
          ASSERT_EQ(std::memcmp(held, one.view().raw(), one.view().bytes()), 0)
              << what << " in its page, row " << t;
        }
      };
      expect("q", 0, c.heads, c.head_dim, c.norms ? &q_norm : nullptr, true, nullptr);
      expect("k", q_size, c.kv_heads, c.head_dim, c.norms ? &k_norm : nullptr, true, &k_pages);
      if (v_size > 0)
        expect("v", q_size + k_size, c.kv_heads, c.value_dim, c.v_norm ? &v_norm : nullptr, false, &v_pages);
    }
    for (int slot = 0; slot < tables.total * kPageTokens; ++slot) {
      if (written[static_cast<std::size_t>(slot)]) continue;
      ASSERT_EQ(std::memcmp(kv_entry(k_pages, slot), kv_entry(k_untouched, slot), bytes_of(c.dtype, k_size)),
                0)
          << "slot " << slot;
    }
  }
}

// A row's bits do not depend on the rows beside it.
TEST_P(PrepareQkvTest, ARowAloneHasTheSameBits) {
  const PageTables tables({70}, 3);
  const Case& c = kCases[0];
  const Rotation r = rotation_of(c);
  const HostTensor whole = random_tensor({70, c.heads * c.head_dim}, 8);
  const HostTensor norm = random_tensor({c.head_dim}, 6);
  HostTensor together = whole;
  CpuOps ops({.threads = 2, .scalar = scalar()});
  const auto run = [&](const HostTensor& rows, const Step& step) {
    const HostBatch batch(step, tables);
    ops.prepare_qkv({.q = rows.view().reshape({rows.view().rows(), c.heads, c.head_dim}),
                     .q_norm = norm,
                     .rope = &r.rope},
                    batch.batch);
  };
  run(together, {{.rows = 70}});
  for (int t = 0; t < 70; ++t) {
    const Step one{{.start = t, .rows = 1}};
    const HostTensor row = gather(one, {whole});
    run(row, one);
    EXPECT_EQ(first_difference(row.f32(), together.view().row<float>(t), row.elements()), -1) << "row " << t;
  }
}

TEST(KvConvert, EveryNarrowValueReadsBackAsTheScalarConversionSays) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16}) {
    const int n = dtype == DType::kF8E4M3 ? 256 : 65536;
    HostTensor bits({n}, dtype), values({n});
    for (int i = 0; i < n; ++i) {
      if (dtype == DType::kF8E4M3) {
        bits.view().data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
      } else {
        bits.view().data<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
      }
    }
    load_kv(dtype, values.f32(), bits.view().raw(), 0, n);
    HostTensor simd({n});
    simd::widen_row(dtype, simd.f32(), bits.view().raw(), n);
    for (int i = 0; i < n; ++i) {
      if (std::isnan(values.f32()[i])) {
        EXPECT_TRUE(std::isnan(simd.f32()[i])) << name(dtype) << " " << i;
      } else {
        EXPECT_EQ(first_difference(simd.f32() + i, values.f32() + i, 1), -1) << name(dtype) << " " << i;
      }
    }
  }
}

// Channels before the offset stay, and queries grow with the position (1 + beta ln(1 + floor(p / span))), keys do not.
TEST_P(PrepareQkvTest, TurnsFromAnOffsetAndStretchesQueries) {
  constexpr int kDim = 24, kOffset = 10, kPairs = 5, kRows = 4;
  CpuOps ops({.threads = 1, .scalar = scalar()});
  const PageTables tables({kRows}, 1);
  const HostBatch host({{.sequence = 0, .rows = kRows}}, tables);
  Batch batch = host.batch;
  const HostTensor positions({kRows}, DType::kI32), inv_freq = filled({kPairs}, 0.01F);
  const int at[kRows] = {0, 99, 100, 730};
  std::copy_n(at, kRows, positions.view().data<int>());
  batch.positions = positions;
  const Rope rope{.inv_freq = inv_freq, .offset = kOffset, .query_beta = 0.1F, .query_span = 100};
  const HostTensor start = random_tensor({kRows, kDim}, 4), q = start, k = start;
  ops.prepare_qkv({.q = q.view().reshape({kRows, 1, kDim}), .k = k.view().reshape({kRows, 1, kDim}), .v = {}, .q_norm = {}, .k_norm = {},
                   .v_norm = {}, .rope = &rope, .kv = {}}, batch);
  for (int t = 0; t < kRows; ++t) {
    const double stretch = 1 + 0.1 * std::log(1 + at[t] / 100), angle = at[t] * 0.01;
    const float* x = start.view().row<float>(t);
    for (int i = 0; i < kDim; ++i) {
      double expected = x[i];
      if (i >= kOffset && i < kOffset + kPairs) expected = x[i] * std::cos(angle) - x[i + kPairs] * std::sin(angle);
      if (i >= kOffset + kPairs && i < kOffset + 2 * kPairs) expected = x[i] * std::cos(angle) + x[i - kPairs] * std::sin(angle);
      EXPECT_NEAR(k.view().row<float>(t)[i], expected, 1e-5) << t << ", " << i;
      EXPECT_NEAR(q.view().row<float>(t)[i], expected * stretch, 1e-5) << t << ", " << i;
    }
  }
}

}  // namespace
}  // namespace strata::testing
