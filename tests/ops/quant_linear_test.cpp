// Products with block-quantised weights.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/quant_layout.h"
#include "ops/test_matrix.h"
#include "tensor/quant.h"

namespace strata {
namespace {

using test::Owned;
using test::random_matrix;
using test::random_vector;
using test::same_bits;

constexpr DType kBlockTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,   DType::kQ2_K,  DType::kQ3_K,
                                 DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
constexpr CpuIsa kSets[] = {CpuIsa::kAvx2, CpuIsa::kAvxVnni, CpuIsa::kAvx512, CpuIsa::kAmx};

struct Quantised {
  Owned blocks;  // [n, k] of the type
  Owned values;  // [n, k] f32, what the blocks mean
};

Quantised quantised(DType type, std::int64_t n, std::int64_t k, std::uint32_t seed) {
  const Owned x = random_matrix(DType::kF32, n, k, seed);
  Quantised q{Owned(type, {n, k}), Owned(DType::kF32, {n, k})};
  for (std::int64_t r = 0; r < n; ++r) {
    std::byte* row = q.blocks.tensor.raw() + bytes_of(type, r * k);
    quantize_row(type, x.row(r), k, row);
    dequantize_row(type, row, k, q.values.row(r));
  }
  return q;
}

Owned run(CpuOps& ops, const Tensor& x, const Weight& w, const Tensor& bias = {}) {
  Owned out(DType::kF32, {x.rows(), w.outputs()});
  ops.linear(out.tensor, x, w, bias);
  return out;
}

class QuantLinear : public testing::TestWithParam<DType> {
 protected:
  CpuOps ops_{{.threads = 2}};
};

// The definition in double: activations rounded to 127ths of the largest of 32.
TEST_P(QuantLinear, IsTheProductOfTheRoundedRows) {
  for (const std::int64_t k : {256, 512, 2048}) {
    for (const std::int64_t n : {1, 15, 16, 17, 100}) {
      const Quantised w = quantised(GetParam(), n, k, 1);
      const Weight packed = ops_.load(HostMatrix(w.blocks.tensor), {});
      ASSERT_EQ(packed.dtype, GetParam());
      for (const std::int64_t t : {1, 2, 3, 9, 17}) {
        const Owned x = random_matrix(DType::kF32, t, k, 2), bias = random_vector(n, 3);
        const Owned out = run(ops_, x.tensor, packed, bias.tensor);
        for (std::int64_t r = 0; r < t; ++r) {
          std::vector<double> rounded(static_cast<std::size_t>(k));
          for (std::int64_t i = 0; i < k; ++i) {
            float peak = 0;
            for (std::int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) peak = std::max(peak, std::abs(x.row(r)[j]));
            rounded[static_cast<std::size_t>(i)] = std::nearbyint(x.row(r)[i] * (127.0F / peak)) * static_cast<double>(peak / 127.0F);
          }
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0, exact = 0, size = 0;
            for (std::int64_t i = 0; i < k; ++i) {
              sum += rounded[static_cast<std::size_t>(i)] * w.values.row(j)[i];
              exact += static_cast<double>(x.row(r)[i]) * w.values.row(j)[i];
              size += std::abs(static_cast<double>(x.row(r)[i]) * w.values.row(j)[i]);
            }
            const double b = bias.tensor.data<float>()[j];
            ASSERT_NEAR(out.row(r)[j], sum + b, size * 1e-6 + 1e-6) << "row " << r << " output " << j << " K " << k;
            ASSERT_NEAR(out.row(r)[j], exact + b, size * 4e-3) << "row " << r << " output " << j << " K " << k;
          }
        }
      }
    }
  }
}

TEST_P(QuantLinear, ARowIsTheSameAloneInAnyBatchOnAnyThreadsAndInstructions) {
  const std::int64_t n = 150, k = 768, rows = 103;
  const Quantised w = quantised(GetParam(), n, k, 1);
  const Owned x = random_matrix(DType::kF32, rows, k, 2, 3), bias = random_vector(n, 3);
  const Weight packed = ops_.load(HostMatrix(w.blocks.tensor), {});
  const Owned all = run(ops_, x.tensor, packed, bias.tensor);
  for (const std::int64_t chunk : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 64}) {
    for (std::int64_t t = 0; t < rows; t += chunk) {
      const std::int64_t count = std::min(chunk, rows - t);
      const Owned part = run(ops_, x.tensor.rows_from(t, count), packed, bias.tensor);
      ASSERT_TRUE(same_bits(part.tensor, 0, all.tensor, t, count)) << "chunk " << chunk << " row " << t;
    }
  }
  for (const int threads : {1, 3, 5}) {
    CpuOps other({.threads = threads});
    EXPECT_TRUE(same_bits(run(other, x.tensor, packed, bias.tensor).tensor, 0, all.tensor, 0, rows)) << threads;
  }
  CpuOps scalar({.threads = 2, .scalar = true});
  EXPECT_TRUE(same_bits(run(scalar, x.tensor, packed, bias.tensor).tensor, 0, all.tensor, 0, rows));
  int sets = 0;
  for (const CpuIsa isa : kSets) {
    if (!machine_has(isa)) continue;
    ++sets;
    CpuOps other({.threads = 2, .isa = isa});
    EXPECT_TRUE(same_bits(run(other, x.tensor, packed, bias.tensor).tensor, 0, all.tensor, 0, rows)) << static_cast<int>(isa);
    EXPECT_TRUE(same_bits(run(other, x.tensor.rows_from(7, 1), packed, bias.tensor).tensor, 0, all.tensor, 7)) << static_cast<int>(isa);
  }
  RecordProperty("instruction_sets", sets);
}

TEST_P(QuantLinear, ExtremeRowsAreHandled) {
  const Quantised w = quantised(GetParam(), 16, 256, 1);
  const Weight packed = ops_.load(HostMatrix(w.blocks.tensor), {});
  Owned x(DType::kF32, {3, 256});
  for (int i = 0; i < 256; ++i) x.row(1)[i] = 1e30F * (i % 2 == 0 ? 1.0F : -1.0F), x.row(2)[i] = 1e-38F;
  const Owned out = run(ops_, x.tensor, packed);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(out.row(0)[j], 0);
    EXPECT_TRUE(std::isfinite(out.row(1)[j]));
    EXPECT_NEAR(out.row(2)[j], 0, 1e-30);
  }
}

// The largest sums that integers must hold: every code of a row the same, least and greatest among them.
TEST_P(QuantLinear, ExtremeCodesAreSummedExactly) {
  const cpu::QuantLayout layout = cpu::quant_layout(GetParam());
  const std::int64_t k = 512;
  const Quantised w = quantised(GetParam(), 16, k, 1);
  const Weight packed = ops_.load(HostMatrix(w.blocks.tensor), {});
  Owned x(DType::kF32, {9, k});
  for (std::int64_t r = 0; r < 9; ++r) {
    for (std::int64_t i = 0; i < k; ++i) x.row(r)[i] = r < 3 ? 1.0F : r < 6 ? -1.0F : i % 2 == 0 ? 1.0F : -1.0F;
  }
  CpuOps scalar({.threads = 1, .scalar = true});
  for (const int byte : {0x00, 0x7F, 0x80, 0xFF}) {
    for (std::int64_t at = 0; at < packed.data.elements(); at += layout.unit_bytes()) {
      std::memset(packed.data.raw() + at + layout.scale_bytes(), byte, static_cast<std::size_t>(layout.unit_bytes() - layout.scale_bytes()));
    }
    const Owned want = run(scalar, x.tensor, packed);
    for (const CpuIsa isa : kSets) {
      if (!machine_has(isa)) continue;
      CpuOps other({.threads = 1, .isa = isa});
      ASSERT_TRUE(same_bits(run(other, x.tensor, packed).tensor, 0, want.tensor, 0, 9)) << static_cast<int>(isa) << " byte " << byte;
      ASSERT_TRUE(same_bits(run(other, x.tensor.rows_from(4, 1), packed).tensor, 0, want.tensor, 4)) << static_cast<int>(isa) << " byte " << byte;
    }
  }
}

TEST_P(QuantLinear, LoadQuantisesAndStacksAndEmbedReadsTheBlocks) {
  const std::int64_t k = 512;
  const Owned a = random_matrix(DType::kF32, 20, k, 1), b = random_matrix(DType::kBF16, 21, k, 2);
  Owned blocks(GetParam(), {41, k}), values(DType::kF32, {41, k});
  for (std::int64_t r = 0; r < 41; ++r) {
    std::vector<float> row(static_cast<std::size_t>(k));
    for (std::int64_t c = 0; c < k; ++c) {
      row[static_cast<std::size_t>(c)] = static_cast<float>(r < 20 ? test::get(a.tensor, r, c) : test::get(b.tensor, r - 20, c));
    }
    quantize_row(GetParam(), row.data(), k, blocks.tensor.raw() + bytes_of(GetParam(), r * k));
    dequantize_row(GetParam(), blocks.tensor.raw() + bytes_of(GetParam(), r * k), k, values.row(r));
  }
  HostMatrix floats, rows;
  floats.pieces = {{a.tensor, {}, false}, {b.tensor, {}, false}};
  rows.pieces = {{blocks.tensor.rows_from(0, 3), {}, false}, {blocks.tensor.rows_from(3, 38), {}, false}};
  const Weight quantised = ops_.load(floats, GetParam()), stacked = ops_.load(rows, {}), widened = ops_.load(rows, DType::kF32);
  ASSERT_EQ(quantised.storage.bytes(), stacked.storage.bytes());
  EXPECT_EQ(std::memcmp(quantised.storage.data(), stacked.storage.data(), stacked.storage.bytes()), 0);
  EXPECT_EQ(widened.dtype, DType::kF32);

  Owned tokens(DType::kI32, {41}), out(DType::kF32, {41, k}), wide(DType::kF32, {41, k});
  for (int t = 0; t < 41; ++t) tokens.tensor.data<std::int32_t>()[t] = t;
  ops_.embed(out.tensor, tokens.tensor, stacked, 1);
  ops_.embed(wide.tensor, tokens.tensor, widened, 1);
  EXPECT_TRUE(same_bits(out.tensor, 0, values.tensor, 0, 41));
  EXPECT_TRUE(same_bits(wide.tensor, 0, values.tensor, 0, 41));
}

TEST_P(QuantLinear, EachExpertIsItsLinear) {
  const std::int64_t experts = 4, n = 40, k = 256, rows = 50;
  const int choices = 2;
  const Quantised w = quantised(GetParam(), experts * n, k, 1);
  HostMatrix stacked(w.blocks.tensor);
  stacked.experts = static_cast<int>(experts);
  const Weight packed = ops_.load(stacked, {});
  const Owned bias = random_matrix(DType::kF32, experts, n, 3), logits = random_matrix(DType::kF32, rows, experts, 4);
  const Owned x = random_matrix(DType::kF32, rows, k, 5);
  const Routing routing = ops_.route({.logits = logits.tensor}, choices);
  Owned out(DType::kF32, {rows * choices, n});
  ops_.expert_linear(out.tensor, x.tensor, routing, packed, bias.tensor);
  for (std::int64_t e = 0; e < experts; ++e) {
    const Weight plain = ops_.load(HostMatrix(w.blocks.tensor.rows_from(e * n, n)), {});
    const Owned want = run(ops_, x.tensor, plain, bias.tensor.rows_from(e, 1));
    for (std::int64_t i = 0; i < rows * choices; ++i) {
      if (routing.expert.data<std::int32_t>()[i] != e) continue;
      ASSERT_TRUE(same_bits(out.tensor, i, want.tensor, i / choices)) << e << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantLinear, testing::ValuesIn(kBlockTypes), [](const auto& p) { return std::string(name(p.param)); });

TEST(QuantLoad, PartBlocksAreAnError) {
  CpuOps ops({.threads = 1});
  const Owned w = random_matrix(DType::kF32, 4, 96, 1);
  EXPECT_THROW(ops.load(HostMatrix(w.tensor), DType::kQ4_K), Error);
  EXPECT_EQ(ops.load(HostMatrix(w.tensor), DType::kQ8_0).dtype, DType::kQ8_0);
}

// NVFP4 is kept as the bf16 nearest to code times scale times the factor of its piece, for embeddings and products.
TEST(Nvfp4Weights, AreWidenedWithTheirFactors) {
  constexpr std::int64_t kInputs = 48;  // not whole blocks of 32
  CpuOps ops({.threads = 2});
  HostMatrix matrix;
  std::vector<Quantised> pieces;
  float factors[] = {0.37F, 0.0021F};
  for (int p = 0; p < 2; ++p) {
    pieces.push_back(quantised(DType::kNVFP4, 9, kInputs, static_cast<std::uint32_t>(p)));
    matrix.pieces.push_back({pieces.back().blocks.tensor, Tensor(factors + p, DType::kF32, {1, 1}), false});
  }
  const Weight w = ops.load(matrix, {});
  ASSERT_EQ(w.dtype, DType::kBF16);
  EXPECT_THROW(ops.load(matrix, DType::kNVFP4), Error);
  const Owned x = random_matrix(DType::kF32, 3, kInputs, 5);
  const Owned out = run(ops, x.tensor, w);
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t n = 0; n < 18; ++n) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < kInputs; ++k) {
        const double weight = to_float(to_bfloat16(factors[n / 9] * pieces[static_cast<std::size_t>(n / 9)].values.row(n % 9)[k]));
        sum += weight * x.row(r)[k];
        size += std::abs(weight * x.row(r)[k]);
      }
      ASSERT_NEAR(out.row(r)[n], sum, size * 1e-6) << r << " " << n;
    }
  }
}

}  // namespace
}  // namespace strata
