// lora and expert_lora against their formula in double, at awkward sizes; rows do not depend on their
// neighbours, and rows of the base are not touched.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/bodies.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/test_matrix.h"

namespace strata {
namespace {

using test::get;
using test::Owned;
using test::random_matrix;
using test::same_bits;

using Ints = std::vector<std::int32_t>;

Tensor view(Ints& v) { return {v.data(), DType::kI32, {static_cast<std::int64_t>(v.size())}}; }

// One adapter's share of a matrix, packed, and its numbers.
struct Given {
  struct Part {
    Owned b;  // [E * n, rank]
    std::int64_t line, output, n;
  };
  Owned a;  // [E * R, K]; of an embedding [V, R]
  std::vector<Part> parts;
  LoraPair pair;
};

struct PartSize {
  std::int64_t n, rank, output;
};

Weight pack(CpuOps& ops, const Owned& m, int experts) {
  HostMatrix matrix(m.tensor);
  matrix.experts = experts;
  return ops.load(matrix, DType::kF32);
}

Given make(CpuOps& ops, int experts, std::int64_t inputs, const std::vector<PartSize>& parts,
           std::uint32_t seed, bool embedding = false) {
  Given g;
  const std::int64_t E = std::max(experts, 1);
  std::int64_t lines = 0;
  for (const PartSize& p : parts) {
    g.parts.push_back({random_matrix(DType::kF32, E * p.n, p.rank, ++seed), lines, p.output, p.n});
    lines += p.rank;
  }
  g.a = embedding ? random_matrix(DType::kF32, inputs, lines, seed + 99)
                  : random_matrix(DType::kF32, E * lines, inputs, seed + 99);
  g.pair.a = pack(ops, g.a, experts);
  for (const Given::Part& p : g.parts) g.pair.parts.push_back({pack(ops, p.b, experts), p.line, p.output});
  return g;
}

// What g adds to output o, with expert e of a row x (or of token `token`).
double added(const Given& g, std::int64_t e, const float* x, std::int64_t inputs, std::int64_t o,
             int token = -1) {
  double sum = 0;
  const std::int64_t lines = token >= 0 ? g.a.tensor[1] : g.pair.a.outputs();
  for (const Given::Part& p : g.parts) {
    if (o < p.output || o >= p.output + p.n) continue;
    for (std::int64_t r = 0; r < p.b.tensor[1]; ++r) {
      double low = 0;
      if (token >= 0) {
        low = get(g.a.tensor, token, p.line + r);
      } else {
        for (std::int64_t k = 0; k < inputs; ++k) low += get(g.a.tensor, e * lines + p.line + r, k) * x[k];
      }
      sum += low * get(p.b.tensor, e * p.n + o - p.output, r);
    }
  }
  return sum;
}

// Values far from those of the formula are off by the rounding of sums of `terms` terms.
void expect_near(double got, double want, std::int64_t terms) {
  ASSERT_NEAR(got, want, 3e-6 * std::sqrt(static_cast<double>(terms)) * (10 + std::abs(want)));
}

class Lora : public testing::BodyTest {};
STRATA_ON_EVERY_BODY(Lora);

TEST_P(Lora, AddsWhatTheFormulaSays) {
  CpuOps ops({.threads = 2, .scalar = scalar()});
  for (const std::int64_t K : {1, 7, 64, 129}) {
    for (const std::int64_t rows : {1, 3, 40, 200}) {
      const std::int64_t N = 150;
      // Two parts with a gap between them and one of rank 1; an adapter of another rank; one with nothing
      // here.
      const Given one = make(ops, 0, K, {{37, 4, 3}, {65, 17, 40}, {1, 1, 149}}, 1),
                  two = make(ops, 0, K, {{150, 33, 0}}, 50);
      LoraTable table(4, 33);
      ops.set_lora(table, 0, &one.pair);
      ops.set_lora(table, 2, &two.pair);
      const Owned x = random_matrix(DType::kF32, rows, K, 7, 5),
                  before = random_matrix(DType::kF32, rows, N, 8, 3),
                  out = random_matrix(DType::kF32, rows, N, 8, 3);
      Ints adapters;
      for (int t = 0; t < rows; ++t) adapters.push_back(t * 5 % 4 - 1);  // -1, 0, 1 (empty), 2 in turns
      ops.lora(out.tensor, x.tensor, table, view(adapters));
      for (std::int64_t t = 0; t < rows; ++t) {
        const std::int32_t adapter = adapters[static_cast<std::size_t>(t)];
        if (adapter != 0 && adapter != 2) {
          ASSERT_TRUE(same_bits(out.tensor, t, before.tensor, t)) << "row " << t << " has no adapter";
          continue;
        }
        for (std::int64_t o = 0; o < N; ++o) {
          expect_near(out.row(t)[o], before.row(t)[o] + added(adapter == 0 ? one : two, 0, x.row(t), K, o),
                      K + 33);
        }
      }
    }
  }
}

TEST_P(Lora, RowsDoNotDependOnTheirNeighbours) {
  CpuOps ops({.threads = 3, .scalar = scalar()});
  const std::int64_t K = 100, N = 77, rows = 230;
  const Given one = make(ops, 0, K, {{77, 20, 0}}, 1), two = make(ops, 0, K, {{30, 3, 9}}, 50);
  LoraTable table(2, 20);
  ops.set_lora(table, 0, &one.pair);
  ops.set_lora(table, 1, &two.pair);
  const Owned x = random_matrix(DType::kF32, rows, K, 7), out = random_matrix(DType::kF32, rows, N, 8);
  Ints adapters;
  for (int t = 0; t < rows; ++t) adapters.push_back(t % 3 - 1);
  ops.lora(out.tensor, x.tensor, table, view(adapters));
  const Owned alone = random_matrix(DType::kF32, rows, N, 8);
  for (std::int64_t t = 0; t < rows; ++t) {
    Ints own{adapters[static_cast<std::size_t>(t)]};
    ops.lora(alone.tensor.rows_from(t, 1), x.tensor.rows_from(t, 1), table, view(own));
  }
  EXPECT_TRUE(same_bits(alone.tensor, 0, out.tensor, 0, rows));
}

TEST_P(Lora, SumsOfEveryBodyAreTheSame) {
  CpuOps plain({.threads = 1, .scalar = true}), ops({.threads = 1, .scalar = scalar()});
  const std::int64_t K = 70, N = 41, rows = 9;
  const Owned x = random_matrix(DType::kF32, rows, K, 7), a = random_matrix(DType::kF32, rows, N, 8),
              b = random_matrix(DType::kF32, rows, N, 8);
  Ints adapters(static_cast<std::size_t>(rows), 0);
  const std::pair<CpuOps*, const Owned*> both[] = {{&plain, &a}, {&ops, &b}};
  for (const auto& [backend, out] : both) {
    const Given g = make(*backend, 0, K, {{41, 6, 0}}, 1);
    LoraTable table(1, 6);
    backend->set_lora(table, 0, &g.pair);
    backend->lora(out->tensor, x.tensor, table, view(adapters));
  }
  EXPECT_TRUE(same_bits(a.tensor, 0, b.tensor, 0, rows));
}

TEST_P(Lora, EmbeddingTakesRowsOfA) {
  CpuOps ops({.threads = 2, .scalar = scalar()});
  const std::int64_t V = 53, D = 35;
  const Given g = make(ops, 0, V, {{D, 5, 0}}, 1, true);
  LoraTable table(1, 6, true);
  ops.set_lora(table, 0, &g.pair);
  Ints tokens{0, 52, 17, 3, 17}, adapters{0, 0, -1, 0, 0};
  const Owned before = random_matrix(DType::kF32, 5, D, 8), out = random_matrix(DType::kF32, 5, D, 8);
  ops.lora(out.tensor, view(tokens), table, view(adapters));
  for (std::int64_t t = 0; t < 5; ++t) {
    for (std::int64_t o = 0; o < D; ++o) {
      const double add = t == 2 ? 0 : added(g, 0, nullptr, V, o, tokens[static_cast<std::size_t>(t)]);
      expect_near(out.row(t)[o], before.row(t)[o] + add, 5);
    }
  }
  EXPECT_TRUE(same_bits(out.tensor, 2, before.tensor, 2));
}

TEST_P(Lora, ExpertsByRowAndChoice) {
  CpuOps ops({.threads = 2, .scalar = scalar()});
  const int E = 5, k = 2;
  const std::int64_t K = 39, N = 66;
  for (const std::int64_t rows : {1, 4, 130}) {
    for (const bool wide : {false, true}) {  // x a row for each choice
      const Given one = make(ops, E, K, {{30, 4, 0}, {36, 9, 30}}, 1),
                  two = make(ops, E, K, {{66, 2, 0}}, 50);
      LoraTable table(3, 13);
      ops.set_lora(table, 0, &one.pair);
      ops.set_lora(table, 1, &two.pair);
      const Owned logits = random_matrix(DType::kF32, rows, E, 3);
      const Scratch scratch(ops.arena());
      const Routing routing = ops.route({.logits = logits.tensor}, k);
      const Owned x = random_matrix(DType::kF32, wide ? rows * k : rows, K, 7),
                  before = random_matrix(DType::kF32, rows * k, N, 8),
                  out = random_matrix(DType::kF32, rows * k, N, 8),
                  alone = random_matrix(DType::kF32, rows * k, N, 8);
      Ints adapters;
      for (int t = 0; t < rows; ++t) adapters.push_back((t + 1) % 3 - 1);
      ops.expert_lora(out.tensor, x.tensor, routing, table, view(adapters));
      for (std::int64_t t = 0; t < rows; ++t) {
        const std::int32_t adapter = adapters[static_cast<std::size_t>(t)];
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t entry = t * k + j;
          if (adapter < 0) {
            ASSERT_TRUE(same_bits(out.tensor, entry, before.tensor, entry));
            continue;
          }
          for (std::int64_t o = 0; o < N; ++o) {
            const double add = added(adapter == 0 ? one : two, routing.expert.row<std::int32_t>(t)[j],
                                     x.row(wide ? entry : t), K, o);
            expect_near(out.row(entry)[o], before.row(entry)[o] + add, K + 9);
          }
        }
        Ints own{adapter};
        const Scratch inner(ops.arena());
        const Routing single = ops.route({.logits = logits.tensor.rows_from(t, 1)}, k);
        ops.expert_lora(alone.tensor.rows_from(t * k, k), x.tensor.rows_from(wide ? t * k : t, wide ? k : 1),
                        single, table, view(own));
      }
      EXPECT_TRUE(same_bits(alone.tensor, 0, out.tensor, 0, rows * k));
    }
  }
}

TEST(LoraSlots, AnEmptiedSlotAddsNothing) {
  CpuOps ops({.threads = 1});
  const Given g = make(ops, 0, 8, {{8, 2, 0}}, 1);
  LoraTable table(1, 6);
  ops.set_lora(table, 0, &g.pair);
  ops.set_lora(table, 0, nullptr);
  const Owned x = random_matrix(DType::kF32, 1, 8, 7), before = random_matrix(DType::kF32, 1, 8, 8),
              out = random_matrix(DType::kF32, 1, 8, 8);
  Ints adapters{0};
  ops.lora(out.tensor, x.tensor, table, view(adapters));
  EXPECT_TRUE(same_bits(out.tensor, 0, before.tensor, 0));
}

TEST(LoraDeath, NamesTheMismatch) {
  CpuOps ops({.threads = 1});
  const Given g = make(ops, 0, 8, {{8, 2, 0}}, 1);
  LoraTable table(1, 6);
  ops.set_lora(table, 0, &g.pair);
  const Owned x = random_matrix(DType::kF32, 1, 9, 7), out = random_matrix(DType::kF32, 1, 8, 8);
  Ints inside{0}, outside{1};
  EXPECT_DEATH(ops.lora(out.tensor, x.tensor, table, view(inside)), "inputs of A 8, expected 9");
  EXPECT_DEATH(ops.lora(out.tensor, x.tensor, table, view(outside)), "adapter 1 of 1 slots");
}

}  // namespace
}  // namespace strata
