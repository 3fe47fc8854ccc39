// attention: its formula, and that a row's bits depend on its own sequence alone.
#include <gtest/gtest.h>

#include "ops/batch_fixture.h"
#include "ops/bodies.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kv_convert.h"

namespace strata::testing {
namespace {

struct Case {
  int heads, kv_heads, head_dim,
      value_dim;  // value_dim < 0: the values are the first -value_dim columns of the keys
  int window = 0, skip = 0;
  float softcap = 0;
  bool sinks = false, gate = false;
  DType dtype = DType::kF32;

  int values() const { return std::abs(value_dim); }
  std::string name() const {
    return fmt::format("{}/{} heads, {} -> {}, window {}, skip {}, softcap {}, sinks {}, gate {}, {}", heads,
                       kv_heads, head_dim, value_dim, window, skip, softcap, sinks, gate,
                       strata::name(dtype));
  }
};

const Case kCases[] = {
    {.heads = 1, .kv_heads = 1, .head_dim = 16, .value_dim = 16},
    {.heads = 4, .kv_heads = 4, .head_dim = 20, .value_dim = 20},
    {.heads = 8, .kv_heads = 2, .head_dim = 64, .value_dim = 64, .window = 24, .sinks = true},
    {.heads = 7, .kv_heads = 1, .head_dim = 128, .value_dim = 128, .softcap = 5, .dtype = DType::kBF16},
    {.heads = 2, .kv_heads = 1, .head_dim = 256, .value_dim = 256, .gate = true, .dtype = DType::kF16},
    {.heads = 4, .kv_heads = 2, .head_dim = 24, .value_dim = 40, .window = 1, .dtype = DType::kF8E4M3},
    {.heads = 40, .kv_heads = 1, .head_dim = 72, .value_dim = -64, .skip = 1},  // MLA: more heads than a tile
    {.heads = 3, .kv_heads = 1, .head_dim = 40, .value_dim = -20, .dtype = DType::kBF16},
    {.heads = 6,
     .kv_heads = 3,
     .head_dim = 32,
     .value_dim = 32,
     .window = 100,
     .skip = 3,
     .softcap = 20,
     .sinks = true,
     .gate = true},
};

// Sequences with random q, and k, v already in their pages; whatever no sequence owns is NaN.
struct World {
  Case c;
  std::vector<int> lengths;
  PageTables tables;
  HostTensor k, v, sinks;
  std::vector<HostTensor> q, gate;
  std::vector<HostTensor> keys, values;  // [n, Hk, Dh], [n, Hk, Dv] as the pages hold them

  World(const Case& which, std::vector<int> n) : c(which), lengths(std::move(n)), tables(lengths, 7) {
    const int kv_values = c.value_dim < 0 ? 0 : c.value_dim;
    k = pages(c.head_dim);
    if (kv_values > 0) v = pages(kv_values);
    if (c.sinks) sinks = random_tensor({c.heads}, 3, 2);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const auto seed = static_cast<unsigned>(10 * s);
      q.push_back(random_tensor({lengths[s], c.heads * c.head_dim}, seed + 1));
      gate.push_back(random_tensor({lengths[s], c.heads * c.values()}, seed + 2));
      keys.push_back(write(k, random_tensor({lengths[s], c.kv_heads * c.head_dim}, seed + 3), s));
      if (kv_values > 0)
        values.push_back(write(v, random_tensor({lengths[s], c.kv_heads * kv_values}, seed + 4), s));
    }
  }

  HostTensor pages(int dim) const {
    HostTensor t({tables.total, kPageTokens, c.kv_heads, dim}, c.dtype);
    const std::vector<float> nan(static_cast<std::size_t>(t.elements()), kNan);
    store_kv(c.dtype, t.view().raw(), 0, nan.data(), t.elements());
    return t;
  }
  // Returns what the pages hold after rounding.
  HostTensor write(const HostTensor& to, const HostTensor& rows, std::size_t s) const {
    HostTensor rounded(rows.view().shape());
    const std::int64_t n = rows.view().row_size();
    for (int i = 0; i < lengths[s]; ++i) {
      const int slot =
          tables.pages[s][static_cast<std::size_t>(i / kPageTokens)] * kPageTokens + i % kPageTokens;
      store_kv(c.dtype, kv_entry(to, slot), 0, rows.view().row<float>(i), n);
      load_kv(c.dtype, rounded.view().row<float>(i), kv_entry(to, slot), 0, n);
    }
    return rounded;
  }

  HostTensor run_step(CpuOps& ops, const Step& step) const {
    const HostBatch batch(step, tables);
    const std::int64_t rows = batch.batch.shape.rows;
    const HostTensor queries = gather(step, q), gates = gather(step, gate);
    HostTensor out = filled({rows, c.heads * c.values()}, kNan);
    ops.attention({.out = out.view().reshape({rows, c.heads, c.values()}),
                   .q = queries.view().reshape({rows, c.heads, c.head_dim}),
                   .kv = {k, v, {}},
                   .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                   .window = c.window,
                   .skip = c.skip,
                   .softcap = c.softcap,
                   .sinks = sinks,
                   .gate = c.gate ? gates.view().reshape({rows, c.heads, c.values()}) : Tensor()},
                  batch.batch);
    return out;
  }
  std::vector<HostTensor> run(CpuOps& ops, const std::vector<Step>& steps) const {
    std::vector<HostTensor> outputs;
    for (const int n : lengths) outputs.push_back(filled({n, c.heads * c.values()}, kNan));
    for (const Step& step : steps) scatter(step, run_step(ops, step), outputs);
    return outputs;
  }

  // The formula in double for row p of sequence s, head h.
  std::vector<double> formula(std::size_t s, int p, int h) const {
    const int kv_head = h / (c.heads / c.kv_heads),
              low = std::max(c.skip, c.window > 0 ? p - c.window + 1 : 0);
    std::vector<double> scores, out(static_cast<std::size_t>(c.values()), 0.0);
    double sum = c.sinks && low <= p ? std::exp(sinks.f32()[h]) : 0;
    for (int j = low; j <= p; ++j) {
      double score = 0;
      for (int i = 0; i < c.head_dim; ++i) {
        score += static_cast<double>(q[s].view().row<float>(p)[h * c.head_dim + i]) *
                 keys[s].view().row<float>(j)[kv_head * c.head_dim + i];
      }
      score /= std::sqrt(c.head_dim);
      if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
      const double weight = std::exp(score);
      sum += weight;
      const float* value = c.value_dim < 0 ? keys[s].view().row<float>(j) + kv_head * c.head_dim
                                           : values[s].view().row<float>(j) + kv_head * c.value_dim;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * value[i];
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (sum != 0) out[i] /= sum;
      if (c.gate)
        out[i] /= 1 + std::exp(-gate[s].view().row<float>(p)[static_cast<std::size_t>(h) * out.size() + i]);
    }
    return out;
  }
};

class AttentionTest : public BodyTest {};
STRATA_ON_EVERY_BODY(AttentionTest);

TEST_P(AttentionTest, MatchesTheFormula) {
  CpuOps ops({.threads = 2, .scalar = scalar()});
  for (const Case& c : kCases) {
    const World world(c, {70, 1, 200, 3});
    const auto outputs = world.run(ops, chunked(world.lengths, 200));
    for (std::size_t s = 0; s < world.lengths.size(); ++s) {
      double most = 0;
      for (int p = 0; p < world.lengths[s]; p += 1 + p / 20) {
        for (int h = 0; h < c.heads; ++h) {
          most = std::max(most, largest_error(outputs[s].view().row<float>(p) + h * c.values(),
                                              world.formula(s, p, h).data(), c.values()));
        }
      }
      EXPECT_LT(most, 1e-5) << c.name() << ", sequence " << s;
    }
  }
}

TEST_P(AttentionTest, EveryCutAndThreadCountGivesTheSameBits) {
  for (const Case& c : kCases) {
    const World world(c, scalar() || GetParam().target == HWY_SCALAR ? std::vector{70, 1, 7}
                                                                     : std::vector{130, 1, 66, 64, 7});
    CpuOps one({.threads = 1, .scalar = scalar()});
    const auto expected = world.run(one, chunked(world.lengths, 130));
    int threads = 0;
    for (const auto& [name, steps] : every_cut(world.lengths, 0)) {
      CpuOps ops(
          {.threads = std::array{1, 2, 3, 5}[static_cast<std::size_t>(threads++ % 4)], .scalar = scalar()});
      const auto outputs = world.run(ops, steps);
      for (std::size_t s = 0; s < world.lengths.size(); ++s) {
        EXPECT_EQ(first_difference(outputs[s], expected[s]), -1)
            << c.name() << ", " << name << ", sequence " << s;
      }
    }
  }
}

// Beyond a span (1024 keys) a decode row is shared among threads, a prefill is not: same bits, and right.
TEST(Attention, LongContextsAreSharedOutWithoutChangingABit) {
  constexpr int kLength = 2500;
  for (const Case& c : {Case{.heads = 4, .kv_heads = 2, .head_dim = 32, .value_dim = 32, .sinks = true},
                        Case{.heads = 4,
                        .kv_heads = 1,
                        .head_dim = 48,
                        .value_dim = -32,
                        .window = 1100,
                        .dtype = DType::kBF16}}) {
    const World world(c, {kLength});
    CpuOps one({.threads = 1}), five({.threads = 5});
    const auto whole = world.run(one, chunked(world.lengths, kLength));
    for (const int p : {0, 1000, 1023, 1024, 1025, 1100, 2047, 2048, 2200, kLength - 1}) {
      const float* expected = whole[0].view().row<float>(p);
      for (CpuOps* ops : {&one, &five}) {
        const HostTensor out = world.run_step(*ops, {{.start = p, .rows = 1}});
        EXPECT_EQ(first_difference(out.f32(), expected, out.elements()), -1) << c.name() << ", row " << p;
      }
      for (int h = 0; h < c.heads; ++h) {
        EXPECT_LT(largest_error(expected + h * c.values(), world.formula(0, p, h).data(), c.values()), 1e-5)
            << c.name() << ", row " << p;
      }
    }
  }
}

TEST(AttentionDeathTest, NamesWhatIsWrong) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  World world({.heads = 4, .kv_heads = 2, .head_dim = 32, .value_dim = 32}, {3});
  CpuOps ops({.threads = 1});
  world.k = HostTensor({world.tables.total, kPageTokens, 2, 16});
  EXPECT_DEATH(world.run_step(ops, {{.rows = 3}}), "head_dim of k 16, expected 32");
}

}  // namespace
}  // namespace strata::testing
