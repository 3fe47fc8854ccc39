// Quantising to FP8 blocks: every number next to the nearest code of its block's scale, whatever the pieces.
#include "ops/cpu/f8_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/matrix_rows.h"
#include "ops/cpu/panel.h"
#include "ops/test_matrix.h"

namespace strata {
namespace {

using test::get;
using test::Owned;
using test::put;
using test::random_matrix;

// Value (row, k) of a piece as the product sees it.
double value(const HostPiece& p, std::int64_t row, std::int64_t k) {
  return p.transposed ? get(p.data, k, row) : get(p.data, row, k);
}

TEST(F8Blocks, ValuesAreTheNearestOfTheirBlock) {
  ThreadPool threads(2);
  for (const auto& [n, inputs] : {std::pair{1, 1}, {128, 128}, {129, 200}, {300, 64}, {7, 400}}) {
    for (const bool transposed : {false, true}) {
      const Owned m =
          transposed ? random_matrix(DType::kBF16, inputs, n, 5) : random_matrix(DType::kBF16, n, inputs, 5);
      if (!transposed) put(m.tensor, 0, 0, 1e-30F);
      HostMatrix from;
      from.pieces.push_back({m.tensor, {}, transposed});
      std::vector<Buffer> kept;
      const HostPiece got = cpu::f8_blocks(from, threads, kept).pieces.at(0);
      ASSERT_EQ(got.data.shape(), (Shape{n, inputs}));
      ASSERT_EQ(got.scales.shape(), (Shape{cpu::scale_blocks(n), cpu::scale_blocks(inputs)}));
      for (int b = 0; b < got.scales.rows(); ++b) {
        for (int c = 0; c < got.scales.row_size(); ++c) {
          const float scale = got.scales.row<float>(b)[c];
          double peak = 0;
          for (int r = b * 128; r < std::min(n, b * 128 + 128); ++r) {
            for (int k = c * 128; k < std::min(inputs, c * 128 + 128); ++k) {
              const double x = value(from.pieces[0], r, k), y = scale * get(got.data, r, k);
              peak = std::max(peak, std::abs(x));
              // Half a step: of 1/8 of the power of two below, or of 2^-9 below 2^-6.
              ASSERT_LE(std::abs(x - y), scale * std::max(std::abs(x) / scale / 16, 0x1p-10) * 1.0001)
                  << n << "x" << inputs << " " << r << ", " << k;
            }
          }
          EXPECT_NEAR(scale, peak / 448, peak * 1e-6);
        }
      }
    }
  }
}

TEST(F8Blocks, ZerosStayAndWhatIsNoNumberIsRefused) {
  ThreadPool threads(1);
  Owned m(DType::kF32, {130, 20});
  std::vector<Buffer> kept;
  const HostPiece zeros = cpu::f8_blocks(HostMatrix(m.tensor), threads, kept).pieces[0];
  for (std::int64_t r = 0; r < 130; ++r) EXPECT_EQ(get(zeros.data, r, 7), 0);
  for (const float x : {NAN, INFINITY}) {
    m.row(129)[19] = x;
    EXPECT_THROW(cpu::f8_blocks(HostMatrix(m.tensor), threads, kept), Error);
  }
}

// Loading in f8 gives the product of the quantised pieces, bit for bit, and is near that of the matrix; the
// seam of the pieces is inside a block, and what is f8 already keeps its numbers.
TEST(F8Blocks, LoadingQuantises) {
  CpuOps ops({.threads = 2});
  const Owned upper = random_matrix(DType::kBF16, 200, 300, 1),
              below = random_matrix(DType::kF32, 57, 300, 2),
              narrow = random_matrix(DType::kF8E4M3, 30, 300, 3),
              scales = random_matrix(DType::kF32, 1, 3, 4), x = random_matrix(DType::kF32, 3, 300, 6);
  HostMatrix matrix;
  matrix.pieces = {
      {upper.tensor, {}, false}, {below.tensor, {}, false}, {narrow.tensor, scales.tensor, false}};
  ThreadPool threads(2);
  std::vector<Buffer> kept;
  const HostMatrix blocks = cpu::f8_blocks(matrix, threads, kept);
  EXPECT_EQ(blocks.pieces[2].data.raw(), narrow.tensor.raw());
  const Weight loaded = ops.load(matrix, DType::kF8E4M3), given = ops.load(blocks, {}),
               plain = ops.load(matrix, DType::kF32);
  EXPECT_EQ(loaded.dtype, DType::kF8E4M3);
  Owned got(DType::kF32, {3, 287}), want(DType::kF32, {3, 287}), exact(DType::kF32, {3, 287});
  ops.linear(got.tensor, x.tensor, loaded, {});
  ops.linear(want.tensor, x.tensor, given, {});
  ops.linear(exact.tensor, x.tensor, plain, {});
  EXPECT_TRUE(test::same_bits(got.tensor, 0, want.tensor, 0, 3));
  double miss = 0, all = 0;
  for (int t = 0; t < 3; ++t) {
    for (int n = 0; n < 287; ++n) {
      const double off = got.row(t)[n] - exact.row(t)[n];
      miss += off * off;
      all += exact.row(t)[n] * exact.row(t)[n];
    }
  }
  EXPECT_LT(std::sqrt(miss / all), 0.04);
  EXPECT_GT(miss, 0);
}

}  // namespace
}  // namespace strata
