// route, expert_linear and combine: the ops of a mixture of experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/cpu/cpu_ops.h"
#include "ops/test_matrix.h"

namespace strata {
namespace {

using test::get;
using test::Owned;
using test::random_matrix;
using test::random_vector;
using test::same_bits;

struct Choice {
  std::vector<int> experts;
  std::vector<double> weights;
};

// The formula in double for one row.
Choice choose(const float* logits, int experts, int k, const RouteArgs& args) {
  std::vector<double> score(static_cast<std::size_t>(experts)), pick;
  const double top = *std::max_element(logits, logits + experts);
  double all = 0;
  for (int e = 0; e < experts; ++e) all += std::exp(logits[e] - top);
  for (std::size_t e = 0; e < score.size(); ++e) {
    score[e] = args.scoring == Scoring::kSigmoid   ? 1 / (1 + std::exp(-static_cast<double>(logits[e])))
               : args.scoring == Scoring::kSoftmax ? std::exp(logits[e] - top) / all
                                                   : logits[e];
    pick.push_back(score[e] + (args.bias.empty() ? 0 : args.bias.data<float>()[e]));
  }
  const int size = experts / args.groups;
  std::vector<std::pair<double, int>> groups;
  for (int g = 0; g < args.groups; ++g) {
    std::vector<double> in(pick.begin() + g * size, pick.begin() + (g + 1) * size);
    std::sort(in.rbegin(), in.rend());
    groups.emplace_back(size > 1 ? -(in[0] + in[1]) : -in[0], g);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<int> ids;
  for (int i = 0; i < args.top_groups; ++i) {
    for (int e = 0; e < size; ++e) ids.push_back(groups[static_cast<std::size_t>(i)].second * size + e);
  }
  std::sort(ids.begin(), ids.end());
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return pick[static_cast<std::size_t>(a)] > pick[static_cast<std::size_t>(b)]; });
  Choice choice;
  double sum = 0;
  for (int j = 0; j < k; ++j) {
    const int e = ids[static_cast<std::size_t>(j)];
    choice.experts.push_back(e);
    const double s = score[static_cast<std::size_t>(e)];
    choice.weights.push_back(args.scoring == Scoring::kTopKSoftmax ? std::exp(s) : s);
    sum += choice.weights.back();
  }
  for (double& w : choice.weights) w *= args.scale / (args.normalise || args.scoring == Scoring::kTopKSoftmax ? sum : 1);
  return choice;
}

TEST(Route, ChoosesAndWeighsAsTheFormulaSays) {
  CpuOps ops({.threads = 2});
  for (const auto scoring : {Scoring::kSoftmax, Scoring::kSigmoid, Scoring::kTopKSoftmax}) {
    for (const int groups : {1, 4}) {
      for (const bool biased : {false, true}) {
        for (const bool normalise : {false, true}) {
          const int experts = 32, k = 5, rows = 63;
          const Owned logits = random_matrix(DType::kF32, rows, experts, 1, 3), bias = random_vector(experts, 2);
          RouteArgs args{.logits = logits.tensor, .scoring = scoring, .groups = groups, .top_groups = (groups + 1) / 2,
                         .normalise = normalise, .scale = 2.5F};
          if (biased) args.bias = bias.tensor;
          const Routing r = ops.route(args, k);
          for (int t = 0; t < rows; ++t) {
            const Choice want = choose(logits.row(t), experts, k, args);
            for (int j = 0; j < k; ++j) {
              ASSERT_EQ(r.expert.row<std::int32_t>(t)[j], want.experts[static_cast<std::size_t>(j)]) << t << " " << j;
              const double w = want.weights[static_cast<std::size_t>(j)];
              ASSERT_NEAR(r.weight.row<float>(t)[j], w, 2e-6 * std::abs(w)) << t << " " << j;
            }
          }
        }
      }
    }
  }
}

TEST(Route, SortsChoicesByExpertAndKeepsTheirOrder) {
  CpuOps ops({.threads = 2});
  const int experts = 9, k = 3, rows = 40;
  const Owned logits = random_matrix(DType::kF32, rows, experts, 1);
  const Routing r = ops.route({.logits = logits.tensor}, k);
  const auto* order = r.order.data<std::int32_t>();
  const auto* first = r.first.data<std::int32_t>();
  ASSERT_EQ(first[0], 0);
  ASSERT_EQ(first[experts], rows * k);
  for (int e = 0; e < experts; ++e) {
    for (int i = first[e]; i < first[e + 1]; ++i) {
      EXPECT_EQ(r.expert.data<std::int32_t>()[order[i]], e);
      if (i > first[e]) {
        EXPECT_LT(order[i - 1], order[i]);
      }
    }
  }
}

TEST(Route, ATieGoesToTheLowerExpert) {
  CpuOps ops({.threads = 1});
  Owned logits(DType::kF32, {1, 6});
  for (const int e : {1, 4, 5}) logits.row(0)[e] = 2;
  const Routing r = ops.route({.logits = logits.tensor}, 4);
  const auto* chosen = r.expert.data<std::int32_t>();
  EXPECT_EQ(std::vector<int>(chosen, chosen + 4), (std::vector<int>{1, 4, 5, 0}));
}

TEST(Route, ARowDoesNotDependOnItsBatchNorThreads) {
  CpuOps ops({.threads = 2}), five({.threads = 5});
  const Owned logits = random_matrix(DType::kF32, 30, 64, 1);
  const Routing all = ops.route({.logits = logits.tensor}, 8), other = five.route({.logits = logits.tensor}, 8);
  EXPECT_TRUE(same_bits(all.weight, 0, other.weight, 0, 30));
  for (int t = 0; t < 30; ++t) {
    const Routing one = ops.route({.logits = logits.tensor.rows_from(t, 1)}, 8);
    EXPECT_TRUE(same_bits(all.weight, t, one.weight, 0));
    EXPECT_TRUE(std::equal(one.expert.data<std::int32_t>(), one.expert.data<std::int32_t>() + 8, all.expert.row<std::int32_t>(t)));
  }
}

TEST(Route, AnExpertsOwnScaleIsAFactorOfItsWeight) {
  const Owned logits = random_matrix(DType::kF32, 9, 12, 5);
  CpuOps ops({.threads = 2});
  std::vector<float> scales;
  for (int e = 0; e < 12; ++e) scales.push_back(0.5F + static_cast<float>(e) / 4);
  const Routing plain = ops.route({.logits = logits.tensor, .scale = 1.5F}, 3);
  const Routing scaled = ops.route({.logits = logits.tensor, .scale = 1.5F, .expert_scale = Tensor(scales.data(), DType::kF32, {12})}, 3);
  for (int i = 0; i < 27; ++i) {
    const int expert = plain.expert.data<int>()[i];
    ASSERT_EQ(scaled.expert.data<int>()[i], expert);
    EXPECT_NEAR(scaled.weight.data<float>()[i], plain.weight.data<float>()[i] * scales[static_cast<std::size_t>(expert)], 1e-6);
  }
}

TEST(Route, AllSendsEveryRowToEveryExpertInOrder) {
  CpuOps ops({.threads = 1});
  const Routing r = ops.route_all(3, 4);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(r.expert.data<int>()[i], i % 4);
    EXPECT_EQ(r.weight.data<float>()[i], 1.0F);
    EXPECT_EQ(r.order.data<int>()[i], i % 3 * 4 + i / 3);
  }
  for (int e = 0; e <= 4; ++e) EXPECT_EQ(r.first.data<int>()[e], 3 * e);
}

TEST(ExpertLinear, EachChoiceIsThatExpertsLinear) {
  CpuOps ops({.threads = 2}), three({.threads = 3}), scalar({.threads = 1, .scalar = true});
  const std::int64_t experts = 5, n = 85, k = 70;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    std::vector<Owned> matrices;
    std::vector<Owned> scales;
    HostMatrix stacked;
    stacked.experts = static_cast<int>(experts);
    for (std::int64_t e = 0; e < experts; ++e) {
      matrices.push_back(random_matrix(type, n, k, static_cast<std::uint32_t>(10 + e)));
      scales.push_back(random_matrix(DType::kF32, 1, 1, static_cast<std::uint32_t>(20 + e)));
      stacked.pieces.push_back({matrices.back().tensor, type == DType::kF8E4M3 ? scales.back().tensor : Tensor{}, false});
    }
    const Weight w = ops.load(stacked, {});
    EXPECT_EQ(w.shape, (Shape{experts, n, k}));
    const Owned bias = random_matrix(DType::kF32, experts, n, 3);
    for (const std::int64_t rows : {1, 2, 7, 100, 300}) {
      const int choices = 3;
      const Owned logits = random_matrix(DType::kF32, rows, experts, 4), x = random_matrix(DType::kF32, rows * choices, k, 5, 2);
      const Routing routing = ops.route({.logits = logits.tensor}, choices);
      for (const bool shared_rows : {true, false}) {
        const Tensor in = shared_rows ? x.tensor.rows_from(0, rows) : x.tensor;
        Owned out(DType::kF32, {rows * choices, n}), same(DType::kF32, {rows * choices, n});
        ops.expert_linear(out.tensor, in, routing, w, bias.tensor);
        for (CpuOps* other : {&three, &scalar}) {
          other->expert_linear(same.tensor, in, routing, w, bias.tensor);
          EXPECT_TRUE(same_bits(out.tensor, 0, same.tensor, 0, rows * choices));
        }
        for (std::int64_t e = 0; e < experts; ++e) {
          HostMatrix one;
          one.pieces = {stacked.pieces[static_cast<std::size_t>(e)]};
          const Weight plain = ops.load(one, {});
          Owned want(DType::kF32, {in.rows(), n});
          ops.linear(want.tensor, in, plain, bias.tensor.rows_from(e, 1));
          for (std::int64_t i = 0; i < rows * choices; ++i) {
            if (routing.expert.data<std::int32_t>()[i] != e) continue;
            ASSERT_TRUE(same_bits(out.tensor, i, want.tensor, shared_rows ? i / choices : i)) << "expert " << e << " entry " << i;
          }
        }
      }
    }
  }
}

TEST(Combine, AddsChoicesInOrderAndTheSharedExpert) {
  CpuOps ops({.threads = 2}), five({.threads = 5});
  const std::int64_t rows = 17, width = 101;
  const int k = 4;
  const Owned logits = random_matrix(DType::kF32, rows, 8, 1), y = random_matrix(DType::kF32, rows * k, width, 2);
  const Owned shared = random_matrix(DType::kF32, rows, width, 3, 4), gate = random_matrix(DType::kF32, rows, 1, 4);
  const Routing routing = ops.route({.logits = logits.tensor}, k);
  for (const int kind : {0, 1, 2}) {  // no shared expert, an ungated one, a gated one
    const Tensor s = kind > 0 ? shared.tensor : Tensor{}, g = kind > 1 ? gate.tensor : Tensor{};
    Owned out(DType::kF32, {rows, width}), same(DType::kF32, {rows, width});
    ops.combine(out.tensor, y.tensor, routing, s, g);
    five.combine(same.tensor, y.tensor, routing, s, g);
    EXPECT_TRUE(same_bits(out.tensor, 0, same.tensor, 0, rows));
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        double want = 0;
        for (int j = 0; j < k; ++j) want += static_cast<double>(routing.weight.row<float>(t)[j]) * y.row(t * k + j)[i];
        if (kind > 0) want += shared.row(t)[i] * (kind > 1 ? 1 / (1 + std::exp(-static_cast<double>(gate.row(t)[0]))) : 1.0);
        ASSERT_NEAR(out.row(t)[i], want, 2e-6);
      }
    }
  }
}

TEST(ExpertsDeath, NameTheMismatch) {
  CpuOps ops({.threads = 1});
  const Owned logits = random_matrix(DType::kF32, 2, 4, 1), x = random_matrix(DType::kF32, 2, 8, 1);
  const Owned matrix = random_matrix(DType::kF32, 3 * 16, 8, 1);
  HostMatrix three(matrix.tensor);
  three.experts = 3;
  const Weight w = ops.load(three, {}), plain = ops.load(HostMatrix(matrix.tensor), {});
  const Routing routing = ops.route({.logits = logits.tensor}, 2);
  Owned out(DType::kF32, {4, 16});
  EXPECT_DEATH(ops.expert_linear(out.tensor, x.tensor, routing, w, {}), "expert_linear experts: routing 4, weight 3");
  EXPECT_DEATH(ops.expert_linear(out.tensor, x.tensor, routing, plain, {}), "has no experts");
  EXPECT_DEATH(ops.route({.logits = logits.tensor}, 5), "route: 5 of 4 experts");
  EXPECT_DEATH(ops.combine(x.tensor, out.tensor, routing, {}, {}), "combine width: out 8, y 16");
  three.experts = 5;
  EXPECT_DEATH(ops.load(three, {}), "48 rows for 5 experts");
}

}  // namespace
}  // namespace strata
