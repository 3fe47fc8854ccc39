// Sparse attention: block keys, the choice of blocks and attention over them against their formulas in
// double, the same bits for every cut of the sequences.
#include <gtest/gtest.h>

#include "ops/batch_fixture.h"
#include "ops/cpu/cpu_ops.h"

namespace strata::testing {
namespace {

constexpr int kBlock = 4, kMost = 5, kIndexHeads = 3, kDim = 12, kPairs = 4;
constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 20;
const std::vector<int> kLengths{3, 70, 131, 1};

struct Inputs {
  std::vector<HostTensor> index_k, index_q, q, k, v;  // of each sequence [length, ...]
  HostTensor norm = random_tensor({kDim}, 90, 0.2F, 1), inv_freq = HostTensor({kPairs});
  Rope rope;

  Inputs() {
    for (unsigned s = 0; s < kLengths.size(); ++s) {
      const std::int64_t n = kLengths[s];
      index_k.push_back(random_tensor({n, kDim}, 10 + s));
      index_q.push_back(random_tensor({n, kIndexHeads * kDim}, 20 + s));
      q.push_back(random_tensor({n, kHeads * kHeadDim}, 30 + s));
      k.push_back(random_tensor({n, kKvHeads * kHeadDim}, 40 + s));
      v.push_back(random_tensor({n, kKvHeads * kHeadDim}, 50 + s));
    }
    for (int i = 0; i < kPairs; ++i) inv_freq.f32()[i] = std::pow(100.0F, -static_cast<float>(i) / kPairs);
    rope.inv_freq = inv_freq;
  }
};

struct Outputs {
  std::vector<HostTensor> blocks, out;  // of each sequence; blocks as floats [length, kMost]
};

Outputs run(const Inputs& in, const std::vector<Step>& steps, int threads) {
  CpuOps ops({.threads = threads});
  const PageTables tables(kLengths, 5);
  const HostTensor index = filled({tables.total, kPageTokens, kDim}, kNan),
                   k = filled({tables.total, kPageTokens, kKvHeads, kHeadDim}, kNan), v = k;
  const KvView kv{k, v, index};
  Outputs result;
  for (const int n : kLengths) {
    result.blocks.emplace_back(Shape{n, kMost});
    result.out.emplace_back(Shape{n, kHeads * kHeadDim});
  }
  for (const Step& step : steps) {
    const HostBatch host(step, tables);
    const Batch& batch = host.batch;
    const std::int64_t T = batch.shape.rows;
    const HostTensor ik = gather(step, in.index_k), iq = gather(step, in.index_q), q = gather(step, in.q),
                     new_k = gather(step, in.k), new_v = gather(step, in.v);
    ops.prepare_qkv({.q = q.view().reshape({T, kHeads, kHeadDim}),
                     .k = new_k.view().reshape({T, kKvHeads, kHeadDim}),
                     .v = new_v.view().reshape({T, kKvHeads, kHeadDim}),
                     .q_norm = {},
                     .k_norm = {},
                     .v_norm = {},
                     .kv = kv},
                    batch);
    ops.store_index({.k = ik, .norm = in.norm, .eps = 1e-6F, .rope = &in.rope, .block = kBlock, .kv = kv},
                    batch);
    const HostTensor blocks({T, kMost}, DType::kI32);
    ops.select_blocks(
        {.blocks = blocks, .q = iq.view().reshape({T, kIndexHeads, kDim}), .block = kBlock, .kv = kv}, batch);
    const HostTensor out = filled({T, kHeads * kHeadDim}, kNan);
    ops.attention({.out = out.view().reshape({T, kHeads, kHeadDim}),
                   .q = q.view().reshape({T, kHeads, kHeadDim}),
                   .kv = kv,
                   .scale = 0.3F,
                   .sinks = {},
                   .gate = {},
                   .blocks = blocks,
                   .block = kBlock},
                  batch);
    const HostTensor as_floats({T, kMost});
    for (std::int64_t i = 0; i < T * kMost; ++i)
      as_floats.f32()[i] = static_cast<float>(blocks.view().data<int>()[i]);
    scatter(step, as_floats, result.blocks);
    scatter(step, out, result.out);
  }
  return result;
}

// The key of block b in double.
std::vector<double> block_key(const Inputs& in, std::size_t s, int b) {
  std::vector<double> key(kDim);
  double sum = 0;
  for (int i = 0; i < kDim; ++i) {
    auto& x = key[static_cast<std::size_t>(i)];
    for (int j = b * kBlock; j < (b + 1) * kBlock; ++j)
      x += in.index_k[s].view().row<float>(j)[i] / static_cast<double>(kBlock);
    sum += x * x;
  }
  for (int i = 0; i < kDim; ++i)
    key[static_cast<std::size_t>(i)] *= in.norm.f32()[i] / std::sqrt(sum / kDim + 1e-6);
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double angle = static_cast<float>(b * kBlock) * in.inv_freq.f32()[i], x = key[i],
                 y = key[i + kPairs];
    key[i] = x * std::cos(angle) - y * std::sin(angle);
    key[i + kPairs] = y * std::cos(angle) + x * std::sin(angle);
  }
  return key;
}

std::vector<int> chosen(const Inputs& in, std::size_t s, int p) {
  const int complete = (p + 1) / kBlock;
  std::vector<std::pair<double, int>> scores;  // best first, a tie to the lower block
  for (int b = 0; b < complete; ++b) {
    const auto key = block_key(in, s, b);
    double score = 0;
    for (int h = 0; h < kIndexHeads; ++h) {
      double dot = 0;
      for (int i = 0; i < kDim; ++i)
        dot += in.index_q[s].view().row<float>(p)[h * kDim + i] * key[static_cast<std::size_t>(i)];
      score += std::max(0.0, dot);
    }
    scores.emplace_back(-score, b);
  }
  std::sort(scores.begin(), scores.end());
  std::vector<int> blocks;
  for (int i = 0; i < std::min(complete, kMost); ++i)
    blocks.push_back(scores[static_cast<std::size_t>(i)].second);
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

std::vector<double> attended(const Inputs& in, std::size_t s, int p, const std::vector<int>& blocks) {
  std::vector<int> tokens;
  for (const int b : blocks) {
    for (int j = b * kBlock; j < (b + 1) * kBlock; ++j) tokens.push_back(j);
  }
  for (int j = (p + 1) / kBlock * kBlock; j <= p; ++j) tokens.push_back(j);
  std::vector<double> out(kHeads * kHeadDim);
  for (int h = 0; h < kHeads; ++h) {
    const int at = h / (kHeads / kKvHeads) * kHeadDim;
    double total = 0;
    for (const int j : tokens) {
      double dot = 0;
      for (int i = 0; i < kHeadDim; ++i)
        dot += static_cast<double>(in.q[s].view().row<float>(p)[h * kHeadDim + i]) *
               in.k[s].view().row<float>(j)[at + i];
      const double weight = std::exp(dot * 0.3F);
      total += weight;
      for (int i = 0; i < kHeadDim; ++i)
        out[static_cast<std::size_t>(h * kHeadDim + i)] += weight * in.v[s].view().row<float>(j)[at + i];
    }
    for (int i = 0; i < kHeadDim; ++i) out[static_cast<std::size_t>(h * kHeadDim + i)] /= total;
  }
  return out;
}

TEST(SparseAttention, MatchesTheFormulasForEveryCut) {
  const Inputs in;
  const Outputs whole = run(in, alone(kLengths), 1);
  for (std::size_t s = 0; s < kLengths.size(); ++s) {
    for (int p = 0; p < kLengths[s]; ++p) {
      const std::vector<int> blocks = chosen(in, s, p);
      for (int i = 0; i < kMost; ++i) {
        const int expected = i < static_cast<int>(blocks.size()) ? blocks[static_cast<std::size_t>(i)] : -1;
        ASSERT_EQ(whole.blocks[s].view().row<float>(p)[i], static_cast<float>(expected))
            << "sequence " << s << " token " << p;
      }
      ASSERT_LT(largest_error(whole.out[s].view().row<float>(p), attended(in, s, p, blocks).data(),
                              kHeads * kHeadDim),
                1e-5)
          << "sequence " << s << " token " << p;
    }
  }
  for (const auto& [name, steps] : every_cut(kLengths, 0)) {
    const Outputs cut = run(in, steps, 3);
    for (std::size_t s = 0; s < kLengths.size(); ++s) {
      EXPECT_EQ(first_difference(cut.blocks[s], whole.blocks[s]), -1) << name << ", blocks of sequence " << s;
      EXPECT_EQ(first_difference(cut.out[s], whole.out[s]), -1) << name << ", sequence " << s;
    }
  }
}

TEST(SparseAttention, ATieGoesToTheLowerBlock) {
  Inputs in;
  for (std::size_t s = 0; s < kLengths.size(); ++s)
    std::fill_n(in.index_q[s].f32(), in.index_q[s].elements(), 0.0F);
  const Outputs out = run(in, alone(kLengths), 2);
  for (int i = 0; i < kMost; ++i) EXPECT_EQ(out.blocks[2].view().row<float>(130)[i], static_cast<float>(i));
}

}  // namespace
}  // namespace strata::testing
