#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/test_matrix.h"

namespace strata {
namespace {

using test::get;
using test::Owned;
using test::random_matrix;
using test::random_vector;
using test::same_bits;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

Owned run(CpuOps& ops, const Tensor& x, const Weight& w, const Tensor& bias = {}) {
  Owned out(DType::kF32, {x.rows(), w.outputs()});
  ops.linear(out.tensor, x, w, bias);
  return out;
}

// Against sums in double; the bound is that of K roundings to f32.
void expect_product(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    for (std::int64_t n = 0; n < w.rows(); ++n) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < x.row_size(); ++k) {
        const double term = get(x, t, k) * get(w, n, k);
        sum += term;
        size += std::abs(term);
      }
      if (!bias.empty()) sum += bias.data<float>()[n];
      const double bound = (size + std::abs(sum)) * 6e-8 * std::sqrt(static_cast<double>(x.row_size()) + 8) + 1e-30;
      ASSERT_NEAR(out.row<float>(t)[n], sum, bound) << "row " << t << " output " << n << " K " << x.row_size();
    }
  }
}

TEST(Linear, IsTheProductAtAwkwardSizes) {
  CpuOps ops({.threads = 2});
  for (const DType type : kTypes) {
    for (const std::int64_t k : {1, 3, 16, 17, 64, 100, 255, 2048}) {
      for (const std::int64_t n : {1, 15, 16, 17, 100, 333}) {
        const Owned w = random_matrix(type, n, k, 1);
        const Weight packed = ops.load(HostMatrix(w.tensor), {});
        EXPECT_EQ(packed.dtype, type);
        for (const std::int64_t t : {1, 2, 3, 5, 7, 17, 63, 100}) {
          if (k == 2048 && n == 333 && t > 17) continue;  // the double sums would take the time
          const Owned x = random_matrix(DType::kF32, t, k, 2), bias = random_vector(n, 3);
          expect_product(run(ops, x.tensor, packed, bias.tensor).tensor, x.tensor, w.tensor, bias.tensor);
        }
      }
    }
  }
}

// FP8 with a scale for each block of 128 x 128, in two pieces whose seam is inside a panel.
TEST(Linear, Fp8BlocksScaleTheirWeights) {
  CpuOps ops({.threads = 2});
  HostMatrix matrix;
  const std::int64_t k = 300;
  Owned whole(DType::kF32, {200 + 137, k});
  std::vector<Owned> keep;
  std::int64_t row = 0;
  for (const std::int64_t n : {200, 137}) {
    keep.push_back(random_matrix(DType::kF8E4M3, n, k, 5));
    keep.push_back(random_matrix(DType::kF32, (n + 127) / 128, (k + 127) / 128, 6));
    const Tensor data = keep[keep.size() - 2].tensor, scales = keep.back().tensor;
    matrix.pieces.push_back({data, scales, false});
    for (std::int64_t r = 0; r < n; ++r, ++row) {
      for (std::int64_t c = 0; c < k; ++c) {
        whole.row(row)[c] = static_cast<float>(get(data, r, c) * get(scales, r / 128, c / 128));
      }
    }
  }
  const Owned x = random_matrix(DType::kF32, 9, k, 7);
  const Weight packed = ops.load(matrix, {}), widened = ops.load(matrix, DType::kF32);
  EXPECT_EQ(packed.dtype, DType::kF8E4M3);
  EXPECT_LT(packed.storage.bytes(), widened.storage.bytes() / 3);
  const Owned out = run(ops, x.tensor, packed);
  expect_product(out.tensor, x.tensor, whole.tensor, {});
  EXPECT_TRUE(same_bits(out.tensor, 0, run(ops, x.tensor, widened).tensor, 0, 9));
}

TEST(Linear, EveryFp8ValueIsExact) {
  CpuOps ops({.threads = 1});
  Owned w(DType::kF8E4M3, {1, 256});
  Owned x(DType::kF32, {256, 256});  // picks one weight a row
  for (int i = 0; i < 256; ++i) {
    w.tensor.data<std::uint8_t>()[i] = static_cast<std::uint8_t>((i & 0x7F) == 0x7F ? 0 : i);
    x.row(i)[i] = 1;
  }
  const Owned out = run(ops, x.tensor, ops.load(HostMatrix(w.tensor), {}));
  for (int i = 0; i < 256; ++i) EXPECT_EQ(out.row(i)[0], f8e4m3_to_float(w.tensor.data<std::uint8_t>()[i])) << i;
}

class LinearBits : public testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t kRows = 203;
  CpuOps ops_{{.threads = 2}};
};

TEST_P(LinearBits, ARowIsTheSameAloneAndInAnyBatch) {
  for (const auto& [n, k] : {std::pair{333, 255}, {64, 300}, {17, 1}}) {
    const Owned w = random_matrix(GetParam(), n, k, 1), x = random_matrix(DType::kF32, kRows, k, 2), b = random_vector(n, 3);
    const Weight packed = ops_.load(HostMatrix(w.tensor), {});
    const Owned all = run(ops_, x.tensor, packed, b.tensor);
    for (const std::int64_t chunk : {1, 2, 3, 4, 5, 6, 7, 16, 64, 100}) {
      for (std::int64_t t = 0; t < kRows; t += chunk) {
        const std::int64_t count = std::min(chunk, kRows - t);
        const Owned part = run(ops_, x.tensor.rows_from(t, count), packed, b.tensor);
        ASSERT_TRUE(same_bits(part.tensor, 0, all.tensor, t, count)) << n << " x " << k << " chunk " << chunk << " row " << t;
      }
    }
  }
}

TEST_P(LinearBits, ThreadsScalarBodyAndStridesChangeNothing) {
  const std::int64_t n = 150, k = 133;
  const Owned w = random_matrix(GetParam(), n, k, 1), x = random_matrix(DType::kF32, kRows, k, 2);
  const Owned wide = random_matrix(DType::kF32, kRows, k, 2, 5);
  for (std::int64_t t = 0; t < kRows; ++t) std::copy_n(x.row(t), k, wide.row(t));
  const Weight packed = ops_.load(HostMatrix(w.tensor), {});
  const Owned all = run(ops_, x.tensor, packed), one = run(ops_, x.tensor.rows_from(0, 1), packed);
  for (const int threads : {1, 3, 5}) {
    CpuOps other({.threads = threads});
    EXPECT_TRUE(same_bits(run(other, x.tensor, packed).tensor, 0, all.tensor, 0, kRows)) << threads;
    EXPECT_TRUE(same_bits(run(other, x.tensor.rows_from(0, 1), packed).tensor, 0, one.tensor, 0)) << threads;
  }
  CpuOps scalar({.threads = 2, .scalar = true});
  EXPECT_TRUE(same_bits(run(scalar, x.tensor, packed).tensor, 0, all.tensor, 0, kRows));
  EXPECT_TRUE(same_bits(run(ops_, wide.tensor, packed).tensor, 0, all.tensor, 0, kRows));

  const Owned guard = random_matrix(DType::kF32, kRows, n + 9, 4);  // an output that is a column range
  Owned out = random_matrix(DType::kF32, kRows, n + 9, 4);
  ops_.linear(out.tensor.columns(3, n), x.tensor, packed, {});
  EXPECT_TRUE(same_bits(out.tensor.columns(3, n), 0, all.tensor, 0, kRows));
  EXPECT_TRUE(same_bits(out.tensor.columns(0, 3), 0, guard.tensor.columns(0, 3), 0, kRows));
  EXPECT_TRUE(same_bits(out.tensor.columns(n + 3, 6), 0, guard.tensor.columns(n + 3, 6), 0, kRows));
}

TEST_P(LinearBits, EveryInstructionSetGivesTheSame) {
  const Owned w = random_matrix(GetParam(), 100, 257, 1), x = random_matrix(DType::kF32, 20, 257, 2);
  const Weight packed = ops_.load(HostMatrix(w.tensor), {});
  const Owned all = run(ops_, x.tensor, packed);
  std::int64_t targets = hwy::SupportedTargets();
  while (targets != 0) {
    const std::int64_t target = targets & -targets;
    targets &= targets - 1;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    EXPECT_TRUE(same_bits(run(ops_, x.tensor, packed).tensor, 0, all.tensor, 0, 20)) << hwy::TargetName(target);
    EXPECT_TRUE(same_bits(run(ops_, x.tensor.rows_from(4, 1), packed).tensor, 0, all.tensor, 4)) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

INSTANTIATE_TEST_SUITE_P(Types, LinearBits, testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST(Load, PiecesStackTransposeAndMix) {
  CpuOps ops({.threads = 2});
  const std::int64_t k = 37;
  const Owned a = random_matrix(DType::kBF16, 20, k, 1), b = random_matrix(DType::kF16, 21, k, 2);
  Owned turned(DType::kF16, {k, 21}), whole(DType::kF32, {41, k});
  for (std::int64_t r = 0; r < 41; ++r) {
    for (std::int64_t c = 0; c < k; ++c) {
      whole.row(r)[c] = static_cast<float>(r < 20 ? get(a.tensor, r, c) : get(b.tensor, r - 20, c));
      if (r >= 20) test::put(turned.tensor, c, r - 20, whole.row(r)[c]);
    }
  }
  HostMatrix matrix;
  matrix.pieces = {{a.tensor, {}, false}, {turned.tensor, {}, true}};
  const Weight mixed = ops.load(matrix, {}), plain = ops.load(HostMatrix(whole.tensor), {});
  EXPECT_EQ(mixed.dtype, DType::kF32);
  EXPECT_EQ(mixed.shape, (Shape{41, k}));
  const Owned x = random_matrix(DType::kF32, 4, k, 3);
  EXPECT_TRUE(same_bits(run(ops, x.tensor, mixed).tensor, 0, run(ops, x.tensor, plain).tensor, 0, 4));

  matrix.pieces = {{turned.tensor, {}, true}};
  EXPECT_EQ(ops.load(matrix, {}).dtype, DType::kF16);
  EXPECT_TRUE(same_bits(run(ops, x.tensor, ops.load(matrix, {})).tensor, 0,
                        run(ops, x.tensor, ops.load(HostMatrix(b.tensor), {})).tensor, 0, 4));
}

TEST(Load, ConvertsToTheTypeAskedFor) {
  CpuOps ops({.threads = 2});
  const Owned w = random_matrix(DType::kF32, 18, 21, 1), x = random_matrix(DType::kF32, 3, 21, 2);
  for (const DType type : kTypes) {
    Owned rounded(type, {18, 21});
    for (int r = 0; r < 18; ++r) {
      for (int c = 0; c < 21; ++c) test::put(rounded.tensor, r, c, w.row(r)[c]);
    }
    const Weight packed = ops.load(HostMatrix(w.tensor), type);
    EXPECT_EQ(packed.dtype, type);
    EXPECT_TRUE(same_bits(run(ops, x.tensor, packed).tensor, 0,
                          run(ops, x.tensor, ops.load(HostMatrix(rounded.tensor), {})).tensor, 0, 3));
  }
  const Owned bytes(DType::kI32, {2, 2});
  EXPECT_THROW(ops.load(HostMatrix(bytes.tensor), {}), Error);
}

TEST(Load, VectorsAreWidenedAndShifted) {
  CpuOps ops({.threads = 1});
  const Owned v = random_matrix(DType::kBF16, 3, 5, 1);
  const Tensor wide = ops.load_vector(v.tensor, 1.0F);
  ASSERT_EQ(wide.shape(), (Shape{3, 5}));
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 5; ++c) EXPECT_EQ(wide.row<float>(r)[c], static_cast<float>(get(v.tensor, r, c)) + 1.0F);
  }
}

TEST(LinearDeath, NamesTheMismatch) {
  CpuOps ops({.threads = 1});
  const Owned w = random_matrix(DType::kF32, 16, 8, 1), x = random_matrix(DType::kF32, 2, 9, 1), bias = random_vector(15, 1);
  Owned out(DType::kF32, {2, 16}), small(DType::kF32, {2, 15}), more(DType::kF32, {3, 16});
  const Weight packed = ops.load(HostMatrix(w.tensor), {});
  const Tensor x8 = x.tensor.columns(0, 8);
  EXPECT_DEATH(ops.linear(out.tensor, x.tensor, packed, {}), "linear inputs: x 9, weight 8");
  EXPECT_DEATH(ops.linear(small.tensor, x8, packed, {}), "linear outputs: out 15, weight 16");
  EXPECT_DEATH(ops.linear(more.tensor, x8, packed, {}), "linear rows: out 3, x 2");
  EXPECT_DEATH(ops.linear(out.tensor, x8, packed, bias.tensor), "linear bias: 15, outputs 16");
  HostMatrix uneven;
  uneven.pieces = {{w.tensor, {}, false}, {x.tensor, {}, false}};
  EXPECT_DEATH(ops.load(uneven, {}), "inputs of stacked pieces: 8 and 9");
}

}  // namespace
}  // namespace strata
