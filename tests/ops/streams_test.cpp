// Several streams a row: mixing, injecting and gating against their formulas in double; grouped norms without
// a gate.
#include <gtest/gtest.h>

#include "ops/batch_fixture.h"
#include "ops/bodies.h"
#include "ops/cpu/cpu_ops.h"

namespace strata::testing {
namespace {

constexpr int kRows = 5;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Sizes {
  int streams, dim;
};
constexpr Sizes kSizes[] = {{1, 1}, {2, 16}, {4, 33}, {3, 640}};

class StreamsTest : public BodyTest {};
STRATA_ON_EVERY_BODY(StreamsTest);

// `op` fills or changes out [T, n] from inputs; a row alone and on more threads gives the same bits.
template <typename Op, typename Formula>
void expect_rows(bool scalar, std::int64_t n, Op&& op, Formula&& formula) {
  CpuOps one({.threads = 1, .scalar = scalar}), three({.threads = 3, .scalar = scalar});
  const HostTensor start = random_tensor({kRows, n}, 11);
  HostTensor out = start;
  op(one, out.view(), 0, kRows);
  for (int t = 0; t < kRows; ++t) {
    std::vector<double> expected(static_cast<std::size_t>(n));
    formula(t, start.view().row<float>(t), expected.data());
    ASSERT_LT(largest_error(out.view().row<float>(t), expected.data(), n), 1e-5)
        << "row " << t << " of " << n;
    HostTensor alone({1, n});
    std::copy_n(start.view().row<float>(t), n, alone.f32());
    op(three, alone.view(), t, 1);
    ASSERT_EQ(first_difference(alone.f32(), out.view().row<float>(t), n), -1) << "row " << t << " alone";
  }
}

TEST_P(StreamsTest, Mix) {
  for (const auto& [streams, dim] : kSizes) {
    const int S = streams, D = dim;
    const HostTensor x = random_tensor({kRows, S * D}, 1, 2), mix = random_tensor({kRows, S * D}, 2, 3);
    expect_rows(
        scalar(), D,
        [&](CpuOps& ops, Tensor out, int from, int rows) {
          ops.mix_streams(out, x.view().rows_from(from, rows), mix.view().rows_from(from, rows));
        },
        [&](int t, const float*, double* expected) {
          for (int i = 0; i < D; ++i) {
            for (int s = 0; s < S; ++s)
              expected[i] +=
                  sigmoid(mix.view().row<float>(t)[s * D + i]) * x.view().row<float>(t)[s * D + i] / S;
          }
        });
  }
}

TEST_P(StreamsTest, Inject) {
  for (const auto& [streams, dim] : kSizes) {
    const int S = streams, D = dim;
    const HostTensor delta = random_tensor({kRows, D}, 1, 2), weight = random_tensor({kRows, S}, 2, 3);
    expect_rows(
        scalar(), std::int64_t{S} * D,
        [&](CpuOps& ops, Tensor x, int from, int rows) {
          ops.inject_streams(x, delta.view().rows_from(from, rows), weight.view().rows_from(from, rows));
        },
        [&](int t, const float* start, double* expected) {
          for (int i = 0; i < S * D; ++i)
            expected[i] = start[i] +
                          2 * sigmoid(weight.view().row<float>(t)[i / D]) * delta.view().row<float>(t)[i % D];
        });
  }
}

TEST_P(StreamsTest, Gate) {
  for (const auto& [streams, dim] : kSizes) {
    const int S = streams, D = dim;
    HostTensor key = random_tensor({kRows, S * D}, 1), query = random_tensor({kRows, S * D}, 2);
    std::fill_n(key.f32(), D, 0.0F);  // a dot of exactly 0
    const HostTensor value = random_tensor({kRows, D}, 3);
    expect_rows(
        scalar(), std::int64_t{S} * D,
        [&](CpuOps& ops, Tensor out, int from, int rows) {
          ops.gate_streams(out, key.view().rows_from(from, rows), query.view().rows_from(from, rows),
                           value.view().rows_from(from, rows));
        },
        [&](int t, const float*, double* expected) {
          for (int s = 0; s < S; ++s) {
            double dot = 0;
            for (int i = 0; i < D; ++i)
              dot += static_cast<double>(key.view().row<float>(t)[s * D + i]) *
                     query.view().row<float>(t)[s * D + i];
            dot /= std::sqrt(D);
            const double root = std::sqrt(std::max(std::abs(dot), 1e-6)) * (dot > 0 ? 1 : dot < 0 ? -1 : 0);
            for (int i = 0; i < D; ++i) expected[s * D + i] = sigmoid(root) * value.view().row<float>(t)[i];
          }
        });
  }
}

TEST_P(StreamsTest, GroupedNormWithoutAGate) {
  for (const auto& [streams, dim] : kSizes) {
    const int S = streams, D = dim;
    const HostTensor x = random_tensor({kRows, S * D}, 1, 2), weight = random_tensor({S, D}, 2, 0.3F, 1);
    expect_rows(
        scalar(), std::int64_t{S} * D,
        [&](CpuOps& ops, Tensor out, int from, int rows) {
          ops.gated_norm({.out = out.reshape({rows, S, D}),
                          .x = x.view().rows_from(from, rows).reshape({rows, S, D}),
                          .gate = {},
                          .weight = weight,
                          .eps = 1e-5F});
        },
        [&](int t, const float*, double* expected) {
          const float* row = x.view().row<float>(t);
          for (int s = 0; s < S; ++s) {
            double sum = 0;
            for (int i = 0; i < D; ++i) sum += static_cast<double>(row[s * D + i]) * row[s * D + i];
            for (int i = s * D; i < (s + 1) * D; ++i)
              expected[i] = row[i] / std::sqrt(sum / D + 1e-5) * weight.f32()[i];
          }
        });
  }
}

}  // namespace
}  // namespace strata::testing
