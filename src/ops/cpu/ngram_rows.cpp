// ngram_rows: the table rows of each row's hashed n-grams, with the last tokens of each sequence as its
// state.
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/recurrent_run.h"

namespace strata {
namespace {

constexpr int kMostGram = 4;

// The last n tokens, latest first; -1 = none. Slots hold 1 + the last n - 1 of them, latest last.
struct NgramState {
  const NgramArgs& args;
  const std::int32_t* tokens;
  std::int64_t last[kMostGram] = {};

  void load(int slot) {
    std::fill_n(last, kMostGram, -1);
    for (int i = 1; slot >= 0 && i < args.n; ++i)
      last[i - 1] = static_cast<std::int64_t>(args.state.row<float>(slot)[args.n - 1 - i]) - 1;
  }
  void store(int slot) {
    for (int i = 1; i < args.n; ++i)
      args.state.row<float>(slot)[args.n - 1 - i] = static_cast<float>(last[i - 1] + 1);
  }
  void push(std::int64_t token) {
    std::copy_backward(last, last + args.n - 1, last + args.n);
    last[0] = token;
  }
  void replay(int tape, int i) { push(static_cast<std::int64_t>(args.tape.row<float>(tape)[i]) - 1); }
  void expect(int) const {}  // nothing to fetch ahead
  void step(int row) {
    push(tokens[row]);
    auto* out = args.out.row<std::int32_t>(row);
    auto hash = static_cast<std::uint64_t>(last[0]) * static_cast<std::uint64_t>(args.multipliers[0]);
    bool broken = false;  // the end token lies between: what is before it does not count
    for (int gram = 2; gram <= args.n; ++gram) {
      const std::int64_t token = last[gram - 1];
      broken = broken || token < 0 || token == args.end_token;
      hash ^= static_cast<std::uint64_t>(broken ? args.end_token : token) *
              static_cast<std::uint64_t>(args.multipliers[static_cast<std::size_t>(gram - 1)]);
      for (int h = 0; h < args.heads; ++h) {
        const auto i = static_cast<std::size_t>((gram - 2) * args.heads + h);
        const std::int64_t size = args.sizes[i], rest = static_cast<std::int64_t>(hash) % size;
        out[i] = static_cast<std::int32_t>((rest < 0 ? rest + size : rest) + args.offsets[i]);
      }
    }
  }
};

}  // namespace

void CpuOps::ngram_rows(const NgramArgs& args, const Batch& batch) {
  STRATA_CHECK(args.n >= 2 && args.n <= kMostGram, "ngram_rows: grams of {} tokens, at most {}", args.n,
               kMostGram);
  STRATA_CHECK((args.n - 1) * args.heads <= static_cast<int>(args.sizes.size()),
               "ngram_rows: {} hashes a row", (args.n - 1) * args.heads);
  STRATA_CHECK(args.out.dtype() == DType::kI32 && args.out.rows() == batch.shape.rows &&
                   args.out.row_size() == (args.n - 1) * args.heads,
               "ngram_rows: out {}", args.out.shape().to_string());
  check_matrix("ngram_rows", "state", args.state, args.state.rows(), args.n - 1);
  const auto* tokens = batch.tokens.data<std::int32_t>();
  threads_->parallel_for(batch.shape.sequences, [&](std::int64_t s) {
    NgramState state{args, tokens};
    run_recurrence(recurrent_run(batch, static_cast<int>(s), args.state, args.tape), state);
  });
  write_tapes(*threads_, batch, args.tape,
              [&](float* to, int row) { *to = static_cast<float>(tokens[row] + 1); });
}

}  // namespace strata
