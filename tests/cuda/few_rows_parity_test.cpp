// Parity of f8 products of few rows, which are kept as f16 times powers of two where they fit in shared memory.
#include "cuda/random_weights.h"

namespace strata::testing {
namespace {

class FewRowsParity : public Parity {
 protected:
  void SetUp() override {
    Parity::SetUp();
    if (!IsSkipped() && !bf16()) GTEST_SKIP() << "f32 activations keep f32 weights";
  }
};
STRATA_PARITY(FewRowsParity);

// Rows from 1e-20 to 1e20, one of zeros, one with a channel a thousand times the others (whose weights are zero, so that the
// others count), one with NaN and one with infinity in it: each as it is alone. Nothing beyond a row's end is read or written.
TEST_P(FewRowsParity, RowsOfAnySize) {
  constexpr int kRows = 8, kOutlier = 3, kNanRow = 5, kInfRow = 6;
  const float factor[kRows] = {1, 0, 1e-20F, 1, 1e20F, 1, 1, 1};
  unsigned seed = 12000;
  for (const auto& [outputs, inputs] : {std::pair{17, 24}, {2500, 24}, {40, 1032}, {2500, 1032}, {17, 2056}, {2200, 2056}, {40, 4608}, {2200, 4608},
                                        {17, 12296}, {2200, 12296}}) {
    const Matrix m = random_weights(DType::kF8E4M3, {outputs}, inputs, seed += 10);
    for (int n = 0; n < outputs; ++n) test::put(m.matrix.pieces[0].data, n, kOutlier, 0);
    HostTensor values = random_tensor({kRows, inputs + 8}, seed + 1);
    for (int r = 0; r < kRows; ++r) {
      float* row = values.view().row<float>(r);
      for (int k = 0; k < inputs; ++k) row[k] *= factor[r];
      for (int k = inputs; k < inputs + 8; ++k) row[k] = kNan;
    }
    values.view().row<float>(3)[kOutlier] = -1000;
    values.view().row<float>(kNanRow)[inputs - 1] = kNan;
    values.view().row<float>(kInfRow)[0] = INFINITY;
    const WeightPair w = weight(m.matrix);
    const Pair x = both(std::move(values), DType::kBF16).columns(0, inputs);
    std::vector<float> alone[kRows];
    for (const int rows : {1, 2, 3, 4, 5, 7, 8}) {
      const Pair out = poisoned({kRows, outputs + 3}, DType::kF32);
      const auto part = [&](const Tensor& all) { return all.columns(0, outputs).rows_from(0, rows); };
      cpu().linear(part(out.cpu), x.cpu.rows_from(0, rows), w.cpu, {});
      gpu().linear(part(out.gpu), x.gpu.rows_from(0, rows), w.gpu, {});
      const std::vector<float> got = fetch(out.gpu);
      for (int r = 0; r < kRows; ++r) {
        const float *value = got.data() + r * (outputs + 3), *want = out.cpu.row<float>(r);
        double error = 0, norm = 0;
        int finite = 0;
        for (int n = 0; n < outputs + 3; ++n) {
          if (n >= outputs || r >= rows) {
            EXPECT_TRUE(std::isnan(value[n])) << r << " " << n;
            continue;
          }
          finite += std::isfinite(value[n]) ? 1 : 0;
          error += (double{value[n]} - want[n]) * (double{value[n]} - want[n]);
          norm += double{want[n]} * want[n];
        }
        if (r >= rows) continue;
        const std::string what = std::to_string(r) + " of " + std::to_string(rows) + ", " + std::to_string(outputs) + "x" + std::to_string(inputs);
        if (r == kNanRow || r == kInfRow) {
          EXPECT_EQ(finite, 0) << what;
        } else {
          EXPECT_LE(std::sqrt(error), 1e-4 * std::sqrt(norm)) << what;
        }
      }
    }
    if (inputs > 4096) continue;  // 8 rows of more do not fit
    const Pair all = poisoned({kRows, outputs}, DType::kF32), one = poisoned({1, outputs}, DType::kF32);
    gpu().linear(all.gpu, x.gpu, w.gpu, {});
    const std::vector<float> together = fetch(all.gpu);
    for (int r = 0; r < kRows; ++r) {
      if (r == kNanRow || r == kInfRow) continue;
      gpu().linear(one.gpu, x.gpu.rows_from(r, 1), w.gpu, {});
      EXPECT_EQ(fetch(one.gpu), std::vector<float>(together.begin() + r * outputs, together.begin() + (r + 1) * outputs)) << r << ", " << inputs;
    }
  }
}

TEST_P(FewRowsParity, Glu) {
  unsigned seed = 13000;
  for (const auto& [rows, inputs] : {std::pair{1, 24}, {4, 4608}, {8, 2056}, {8, 12296}}) {
    constexpr int kHalf = 80;
    const Matrix m = random_weights(DType::kF8E4M3, {kHalf, kHalf}, inputs, seed += 10);
    const WeightPair w = weight(m.matrix);
    const Pair x = activations({rows, inputs}, seed + 1, 0.1F), bias = vector(2 * kHalf, seed + 2), out = poisoned({rows, kHalf});
    cpu().linear_glu(out.cpu, x.cpu, w.cpu, bias.cpu, Activation::kSilu, 0);
    gpu().linear_glu(out.gpu, x.gpu, w.gpu, bias.gpu, Activation::kSilu, 0);
    EXPECT_LT(distance(out), tolerance()) << rows << "x" << inputs;
  }
}

// With a bf16 matrix of the same rows below the f8 one.
TEST_P(FewRowsParity, StackedPieces) {
  unsigned seed = 14000;
  for (const auto& [rows, upper, inputs] : {std::tuple{1, 384, 24}, {3, 256, 4608}, {8, 6400, 1032}, {8, 128, 12296}}) {
    constexpr int kLower = 21;
    Matrix m = random_weights(DType::kF8E4M3, {upper}, inputs, seed += 10);
    const Matrix below = random_weights(DType::kBF16, {kLower}, inputs, seed + 1);
    m.matrix.pieces.insert(m.matrix.pieces.end(), below.matrix.pieces.begin(), below.matrix.pieces.end());
    const WeightPair w = weight(m.matrix);
    const Pair x = activations({rows, inputs}, seed + 2), out = poisoned({rows, upper + kLower + 3}), part = out.columns(0, upper + kLower);
    cpu().linear(part.cpu, x.cpu, w.cpu, {});
    gpu().linear(part.gpu, x.gpu, w.gpu, {});
    EXPECT_LT(distance(out), tolerance()) << rows << "x" << upper << "x" << inputs;
  }
}

}  // namespace
}  // namespace strata::testing
