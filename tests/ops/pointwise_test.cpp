// Row moves, norms, gates and elementwise ops: formulas in double, strided views, and rows that do not feel
// each other.
#include <gtest/gtest.h>

#include <functional>

#include "ops/batch_fixture.h"
#include "ops/bodies.h"
#include "ops/cpu/cpu_ops.h"

namespace strata::testing {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activation(Activation a, double x) {
  switch (a) {
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
    case Activation::kSigmoid:
      return sigmoid(x);
    default:
      return x;
  }
}

constexpr Activation kActivations[] = {Activation::kSilu,  Activation::kGeluTanh, Activation::kGelu,
                                       Activation::kRelu2, Activation::kSigmoid,  Activation::kNone};
constexpr int kWidths[] = {1, 16, 20, 63, 64, 130, 2048, 20000};

// Columns [3, 3 + width) of a wider matrix, whose other columns are NaN.
struct Strided {
  HostTensor whole;
  Tensor view;
  explicit Strided(const HostTensor& x) : whole(filled({x.view().rows(), x.view().row_size() + 7}, kNan)) {
    const Tensor from = x;
    view = whole.view().columns(3, from.row_size());
    for (std::int64_t r = 0; r < from.rows(); ++r)
      std::copy_n(from.row<float>(r), from.row_size(), view.row<float>(r));
  }
};

using Op =
    std::function<void(CpuOps&, Tensor out, Tensor x, Tensor y)>;  // [T, n] each; x and y may be changed
using Formula = std::function<void(double* out, const double* x, const double* y, int n)>;

// The op against its formula; on strided views, alone, with strangers, on more threads: the same bits.
void expect_op(const std::string& what, int n, bool scalar, const Op& op, const Formula& formula,
               double tolerance = 1e-5) {
  constexpr int kRows = 5;
  HostTensor x = random_tensor({kRows, n}, 1, 3), y = random_tensor({kRows, n}, 2, 3);
  if (n > 20) {  // far out too
    x.f32()[1] = y.f32()[2] = 90;
    x.f32()[2] = y.f32()[1] = -90;
    x.f32()[3] = 1000;
    y.f32()[3] = -1000;
    x.f32()[4] = 1e-6F;
  }
  CpuOps one({.threads = 1, .scalar = scalar}), three({.threads = 3, .scalar = scalar});
  HostTensor out = filled({kRows, n}, kNan), x1 = x, y1 = y;
  op(one, out, x1, y1);
  for (int t = 0; t < kRows; ++t) {
    const float *a = x.view().row<float>(t), *b = y.view().row<float>(t);
    std::vector<double> expected(static_cast<std::size_t>(n)), dx(a, a + n), dy(b, b + n);
    formula(expected.data(), dx.data(), dy.data(), n);
    ASSERT_LT(largest_error(out.view().row<float>(t), expected.data(), n), tolerance) << what << " of " << n;

    HostTensor row = filled({1, n}, kNan), x2 = x, y2 = y;
    op(three, row, x2.view().rows_from(t, 1), y2.view().rows_from(t, 1));
    ASSERT_EQ(first_difference(row.f32(), out.view().row<float>(t), n), -1)
        << what << " of " << n << ": a row alone";
  }
  Strided to(filled({kRows, n}, kNan)), x3(x), y3(y);
  op(three, to.view, x3.view, y3.view);
  for (int t = 0; t < kRows; ++t) {
    ASSERT_EQ(first_difference(to.view.row<float>(t), out.view().row<float>(t), n), -1)
        << what << " of " << n << ": strided";
    ASSERT_TRUE(std::isnan(to.view.row<float>(t)[-1]) && std::isnan(to.view.row<float>(t)[n]))
        << what << " wrote outside";
  }
}

class PointwiseTest : public BodyTest {};
STRATA_ON_EVERY_BODY(PointwiseTest);

void copy(Tensor out, Tensor x) {
  for (std::int64_t r = 0; r < out.rows(); ++r) std::copy_n(x.row<float>(r), x.row_size(), out.row<float>(r));
}

TEST_P(PointwiseTest, Elementwise) {
  for (const int n : kWidths) {
    const auto in_place = [](auto op) {
      return [op](CpuOps& ops, Tensor out, Tensor x, Tensor y) {
        copy(out, x);
        op(ops, out, y);
      };
    };
    expect_op("add", n, scalar(), in_place([](CpuOps& ops, Tensor x, Tensor y) { ops.add(x, y, 0.3F); }),
              [](double* out, const double* x, const double* y, int size) {
                for (int i = 0; i < size; ++i) out[i] = x[i] + 0.3 * y[i];
              });
    expect_op("multiply", n, scalar(), in_place([](CpuOps& ops, Tensor x, Tensor y) { ops.multiply(x, y); }),
              [](double* out, const double* x, const double* y, int size) {
                for (int i = 0; i < size; ++i) out[i] = x[i] * y[i];
              });
    expect_op("multiply by one column", n, scalar(),
              in_place([](CpuOps& ops, Tensor x, Tensor y) { ops.multiply(x, y.columns(0, 1)); }),
              [](double* out, const double* x, const double* y, int size) {
                for (int i = 0; i < size; ++i) out[i] = x[i] * y[0];
              });
    for (const float cap : {0.0F, 30.0F}) {
      expect_op("scale", n, scalar(),
                in_place([cap](CpuOps& ops, Tensor x, Tensor) { ops.scale(x, 2.5F, cap); }),
                [cap](double* out, const double* x, const double*, int size) {
                  for (int i = 0; i < size; ++i)
                    out[i] = cap == 0 ? 2.5 * x[i] : cap * std::tanh(2.5 * x[i] / cap);
                });
    }
    for (const Activation a : kActivations) {
      expect_op("activate", n, scalar(), in_place([a](CpuOps& ops, Tensor x, Tensor) { ops.activate(x, a); }),
                [a](double* out, const double* x, const double*, int size) {
                  for (int i = 0; i < size; ++i) out[i] = activation(a, x[i]);
                });
    }
  }
}

TEST_P(PointwiseTest, Glu) {
  const auto glu = [](Activation a, float limit) {
    return [=](CpuOps& ops, Tensor out, Tensor x, Tensor y) {
      HostTensor both({x.rows(), 2 * x.row_size()});
      ops.concat(both, x, y);
      ops.glu(out, both, a, limit);
    };
  };
  for (const int n : kWidths) {
    for (const Activation a : kActivations) {
      expect_op("glu", n, scalar(), glu(a, 0), [a](double* out, const double* x, const double* y, int size) {
        for (int i = 0; i < size; ++i) out[i] = activation(a, x[i]) * y[i];
      });
    }
    expect_op("clamped glu", n, scalar(), glu(Activation::kClampedSwiGlu, 7),
              [](double* out, const double* x, const double* y, int size) {
                for (int i = 0; i < size; ++i) {
                  const double g = std::min(x[i], 7.0), u = std::clamp(y[i], -7.0, 7.0);
                  out[i] = g * sigmoid(1.702 * g) * (u + 1);
                }
              });
  }
}

TEST_P(PointwiseTest, Norms) {
  for (const int n : kWidths) {
    const HostTensor weight = random_tensor({n}, 9, 0.3F, 1);
    const auto norm = [&](double* out, const double* x, int size, bool weighted) {
      double sum = 0;
      for (int i = 0; i < size; ++i) sum += x[i] * x[i];
      const double factor = 1 / std::sqrt(sum / size + 1e-5);
      for (int i = 0; i < size; ++i) out[i] = x[i] * factor * (weighted ? weight.f32()[i] : 1.0);
    };
    for (const bool weighted : {false, true}) {
      const Tensor w = weighted ? weight.view() : Tensor();
      expect_op(
          "rms_norm", n, scalar(),
          [&](CpuOps& ops, Tensor out, Tensor x, Tensor) { ops.rms_norm(out, x, w, 1e-5F); },
          [&](double* out, const double* x, const double*, int size) { norm(out, x, size, weighted); });
      expect_op(
          "rms_norm in place", n, scalar(),
          [&](CpuOps& ops, Tensor out, Tensor x, Tensor) {
            copy(out, x);
            ops.rms_norm(out, out, w, 1e-5F);
          },
          [&](double* out, const double* x, const double*, int size) { norm(out, x, size, weighted); });
      const auto sum_of = [](const double* x, const double* y, int size) {
        std::vector<double> sum(x, x + size);
        for (int i = 0; i < size; ++i) sum[static_cast<std::size_t>(i)] += 0.5 * y[i];
        return sum;
      };
      expect_op(
          "add_rms_norm", n, scalar(),
          [&](CpuOps& ops, Tensor out, Tensor x, Tensor y) { ops.add_rms_norm(out, x, y, 0.5F, w, 1e-5F); },
          [&](double* out, const double* x, const double* y, int size) {
            norm(out, sum_of(x, y, size).data(), size, weighted);
          });
      expect_op(
          "add_rms_norm: x", n, scalar(),
          [&](CpuOps& ops, Tensor out, Tensor x, Tensor y) {
            ops.add_rms_norm(out, x, y, 0.5F, w, 1e-5F);
            copy(out, x);
          },
          [&](double* out, const double* x, const double* y, int size) {
            const auto sum = sum_of(x, y, size);
            std::copy(sum.begin(), sum.end(), out);
          });
    }
  }
}

TEST_P(PointwiseTest, GatedNorm) {
  struct Case {
    int heads, dim, group;
    bool gate_first, shared;
    Activation activation;
  };
  const Case cases[] = {
      {1, 16, 0, false, true, Activation::kSilu},   {3, 20, 0, false, true, Activation::kSigmoid},
      {4, 128, 0, false, false, Activation::kSilu}, {1, 256, 64, true, true, Activation::kSilu},
      {2, 40, 20, true, false, Activation::kSilu},  {5, 64, 0, true, true, Activation::kSigmoid}};
  for (const Case& c : cases) {
    const int n = c.heads * c.dim, group = c.group == 0 ? c.dim : c.group;
    const HostTensor weight = random_tensor({c.shared ? c.dim : n}, 9, 0.3F, 1);
    expect_op(
        fmt::format("gated_norm {}x{} group {} gate_first {}", c.heads, c.dim, c.group, c.gate_first), n,
        scalar(),
        [&](CpuOps& ops, Tensor out, Tensor x, Tensor y) {
          const Shape shape{x.rows(), c.heads, c.dim};
          ops.gated_norm({.out = out.reshape(shape),
                          .x = x.reshape(shape),
                          .gate = y.reshape(shape),
                          .weight = c.shared ? weight.view() : weight.view().reshape({c.heads, c.dim}),
                          .eps = 1e-5F,
                          .gate_first = c.gate_first,
                          .group = c.group,
                          .activation = c.activation});
        },
        [&](double* out, const double* x, const double* y, int) {
          for (int g = 0; g < n; g += group) {
            double sum = 0;
            for (int i = g; i < g + group; ++i) {
              const double v = c.gate_first ? x[i] * activation(c.activation, y[i]) : x[i];
              sum += v * v;
            }
            for (int i = g; i < g + group; ++i) {
              out[i] = x[i] * activation(c.activation, y[i]) / std::sqrt(sum / group + 1e-5) *
                       weight.f32()[c.shared ? i % c.dim : i];
            }
          }
        });
  }
}

TEST(Rows, GatherSaveConcat) {
  CpuOps ops({.threads = 2});
  const Strided x(random_tensor({9, 20}, 1)), y(random_tensor({9, 7}, 2));
  HostTensor rows({4}, DType::kI32), saves({3, 2}, DType::kI32), none({0, 2}, DType::kI32);
  const int wanted[] = {8, 0, 3, 3}, pairs[] = {1, 4, 1, 0, 8, 2};
  std::copy_n(wanted, 4, rows.view().data<int>());
  std::copy_n(pairs, 6, saves.view().data<int>());

  HostTensor out({4, 20}), state = filled({5, 20}, kNan), both({9, 27});
  ops.gather_rows(out, x.view, rows);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(first_difference(out.view().row<float>(i), x.view.row<float>(wanted[i]), 20), -1);
  ops.save_rows(x.view, none, state);
  ops.save_rows(x.view, saves, state);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(
        first_difference(state.view().row<float>(pairs[2 * i + 1]), x.view.row<float>(pairs[2 * i]), 20), -1);
  }
  EXPECT_TRUE(std::isnan(*state.view().row<float>(1)) && std::isnan(*state.view().row<float>(3)));
  ops.concat(both, x.view, y.view);
  for (int t = 0; t < 9; ++t) {
    EXPECT_EQ(first_difference(both.view().row<float>(t), x.view.row<float>(t), 20), -1);
    EXPECT_EQ(first_difference(both.view().row<float>(t) + 20, y.view.row<float>(t), 7), -1);
  }
}

TEST(PointwiseDeathTest, NamesBothNumbers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CpuOps ops({.threads = 1});
  HostTensor a({3, 20}), b({3, 24}), c({2, 20}), w({24});
  EXPECT_DEATH(ops.add(a, b, 1), "row of delta 24, expected 20");
  EXPECT_DEATH(ops.rms_norm(c, a, {}, 1e-6F), "rows of out 2, expected 3");
  EXPECT_DEATH(ops.rms_norm(a, a, w, 1e-6F), "weight has 24 elements, expected 20");
  EXPECT_DEATH(ops.glu(a, b, Activation::kSilu, 0), "row of gate_up 24, expected 40");
}

}  // namespace
}  // namespace strata::testing
