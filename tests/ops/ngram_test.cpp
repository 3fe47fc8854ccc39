// ngram_rows: hashes against their definition, for every cut of the sequences.
#include <gtest/gtest.h>

#include "ops/batch_fixture.h"
#include "ops/cpu/cpu_ops.h"

namespace strata::testing {
namespace {

constexpr int kHashes = 2, kEnd = 7;
const std::vector<int> kLengths{1, 70, 131};

NgramArgs args_of(int n) {
  NgramArgs args{.out = {}, .n = n, .heads = kHashes, .end_token = kEnd, .state = {}, .tape = {}};
  args.multipliers = {0x7a3b11c96f1d2e35, 0x4c957f2d8a3f1b01, 0x1357924680ace135, 0x6d2b79f5a3c1e907};
  for (std::size_t i = 0; i < 8; ++i) {
    args.sizes[i] = 251 + 2 * static_cast<std::int64_t>(i);
    args.offsets[i] = 1000 * static_cast<std::int64_t>(i);
  }
  return args;
}

// Tokens are the indices, with end tokens strewn in. Of token i the gram of g tokens.
int token_of(int i) { return i % 11 == 5 ? kEnd : i; }
std::int64_t expected(const NgramArgs& args, int i, int gram, int h) {
  std::uint64_t hash = 0;
  bool broken = false;
  for (int back = 0; back < gram; ++back) {
    int token = i - back < 0 ? kEnd : token_of(i - back);
    if (back > 0) broken = broken || token == kEnd;
    if (broken) token = kEnd;
    // By shifts and additions: a product that wraps.
    for (std::uint64_t bit = 0,
                       add = static_cast<std::uint64_t>(args.multipliers[static_cast<std::size_t>(back)]),
                       product = 0;
         bit <= 32; ++bit, add += add) {
      if ((static_cast<std::uint64_t>(token) >> bit & 1) != 0) product += add;
      if (bit == 32) hash ^= product;
    }
  }
  const auto at = static_cast<std::size_t>((gram - 2) * kHashes + h);
  const std::int64_t size = args.sizes[at], value = static_cast<std::int64_t>(hash);
  return (value % size + size) % size + args.offsets[at];
}

TEST(NgramRows, MatchTheDefinitionForEveryCut) {
  for (const int n : {2, 3, 4}) {
    const std::int64_t width = (n - 1) * kHashes;
    for (const auto& [name, steps] : every_cut(kLengths, static_cast<int>(kLengths.size()))) {
      CpuOps ops({.threads = 2});
      const PageTables tables(kLengths, 5);
      const HostTensor state = filled({static_cast<std::int64_t>(kLengths.size()) + 1, n - 1}, kNan);
      for (const Step& step : steps) {
        const HostBatch host(step, tables);
        Batch batch = host.batch;
        const HostTensor tokens({batch.shape.rows}, DType::kI32), out({batch.shape.rows, width}, DType::kI32);
        for (int t = 0; t < batch.shape.rows; ++t)
          tokens.view().data<int>()[t] = token_of(batch.positions.data<int>()[t]);
        batch.tokens = tokens;
        NgramArgs args = args_of(n);
        args.out = out;
        args.state = state;
        ops.ngram_rows(args, batch);
        int t = 0;
        for (const RowRun& run : step) {
          for (int i = 0; i < run.rows; ++i, ++t) {
            for (int gram = 2; gram <= n && !run.padding; ++gram) {
              for (int h = 0; h < kHashes; ++h) {
                ASSERT_EQ(out.view().row<int>(t)[(gram - 2) * kHashes + h],
                          expected(args, run.start + i, gram, h))
                    << name << ", grams of up to " << n << ": token " << run.start + i;
              }
            }
          }
        }
      }
    }
  }
}

// Drafts on a tape: rows of which some are replayed, then others follow.
TEST(NgramRows, ReplayTapes) {
  const PageTables tables({64}, 5);
  const HostTensor state = filled({2, 2}, kNan), tape = filled({1, kTapeRows, 1}, kNan);
  CpuOps ops({.threads = 1});
  const auto step = [&](RowRun run) {
    const HostBatch host({run}, tables);
    Batch batch = host.batch;
    const HostTensor tokens({run.rows}, DType::kI32), out({run.rows, 2 * kHashes}, DType::kI32);
    for (int i = 0; i < run.rows; ++i) tokens.view().data<int>()[i] = token_of(run.start + i);
    batch.tokens = tokens;
    NgramArgs args = args_of(3);
    args.out = out;
    args.state = state;
    args.tape = tape;
    ops.ngram_rows(args, batch);
    for (int i = 0; i < run.rows; ++i) {
      for (int h = 0; h < kHashes; ++h)
        ASSERT_EQ(out.view().row<int>(i)[kHashes + h], expected(args, run.start + i, 3, h)) << run.start + i;
    }
  };
  step({.sequence = 0, .start = 0, .rows = 13, .saves = {{12, 1}}});
  step({.sequence = 0, .start = 13, .rows = 9, .state_in = 1, .tape = 0, .replay = 0, .state_out = 1});
  step({.sequence = 0,
        .start = 17,
        .rows = 6,
        .state_in = 1,
        .tape = 0,
        .replay = 4,
        .state_out = 1});  // 4 of 9 were right
  step({.sequence = 0, .start = 23, .rows = 3, .state_in = 1, .tape = 0, .replay = 6, .state_out = 1});
}

}  // namespace
}  // namespace strata::testing
