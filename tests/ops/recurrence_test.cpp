// causal_conv, gated_delta and ssd: their formulas, and that no cut of a sequence into steps changes a bit.
#include <gtest/gtest.h>

#include <memory>

#include "ops/bodies.h"
#include "ops/recurrence_fixture.h"

namespace strata::testing {
namespace {

std::vector<Recurrence> recurrences() {
  return {conv_recurrence(20, 4, true, true),
          conv_recurrence(300, 4, false, true),
          conv_recurrence(130, 3, true, false),
          conv_recurrence(5, 1, true, true),
          delta_recurrence(1, 1, 16, 16),
          delta_recurrence(2, 4, 20, 24),
          delta_recurrence(1, 3, 64, 128),
          delta_recurrence(2, 2, 128, 128),
          ssd_recurrence(2, 16, 1, 16, 0, 0),
          ssd_recurrence(4, 40, 2, 20, 0.1F, 0.7F),
          ssd_recurrence(3, 64, 3, 128, 0.001F, 0.0F)};
}

// Everything a series of steps needs: pools filled with NaN, and results by sequence.
struct Pools {
  HostTensor state, tape;
  Pools(const Recurrence& r, int slots, int tapes = 1)
      : state(filled({slots, r.state}, kNan)), tape(filled({tapes, kTapeRows, r.tape}, kNan)) {}
  float* slot(int i) const { return state.view().row<float>(i); }
};

// Runs one step; returns its rows.
HostTensor run_step(const Recurrence& r, CpuOps& ops, const Step& step, const PageTables& tables,
                    const std::vector<HostTensor>& inputs, const Pools& pools) {
  const HostBatch batch(step, tables);
  const HostTensor in = gather(step, inputs);
  HostTensor out = filled({batch.batch.shape.rows, r.outputs}, kNan);
  r.run(ops, out, in, pools.state, pools.tape, batch.batch);
  return out;
}

std::vector<HostTensor> random_inputs(const Recurrence& r, const std::vector<int>& lengths) {
  std::vector<HostTensor> inputs;
  for (const int n : lengths)
    inputs.push_back(random_tensor({n, r.inputs}, 100U + static_cast<unsigned>(inputs.size())));
  return inputs;
}

std::vector<HostTensor> run_cut(const Recurrence& r, CpuOps& ops, const std::vector<Step>& steps,
                                const PageTables& tables, const std::vector<HostTensor>& inputs,
                                const Pools& pools) {
  std::vector<HostTensor> outputs;
  for (const auto& in : inputs) outputs.push_back(filled({in.view().rows(), r.outputs}, kNan));
  for (const Step& step : steps) scatter(step, run_step(r, ops, step, tables, inputs, pools), outputs);
  return outputs;
}

class RecurrenceTest : public BodyTest {};
STRATA_ON_EVERY_BODY(RecurrenceTest);

TEST_P(RecurrenceTest, MatchesTheFormula) {
  CpuOps ops({.threads = 2, .scalar = scalar()});
  const std::vector<int> lengths{70, 1, 200, 3};
  const PageTables tables(lengths, 1);
  for (const Recurrence& r : recurrences()) {
    const auto inputs = random_inputs(r, lengths);
    const Pools pools(r, 5);
    const auto outputs = run_cut(r, ops, chunked(lengths, 200), tables, inputs, pools);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      std::vector<double> state(static_cast<std::size_t>(r.state), 0.0),
          out(static_cast<std::size_t>(r.outputs));
      double most = 0;
      for (int t = 0; t < lengths[s]; ++t) {
        const float* row = inputs[s].view().row<float>(t);
        const std::vector<double> in(row, row + r.inputs);
        r.formula(out.data(), in.data(), state.data());
        most = std::max(most, largest_error(outputs[s].view().row<float>(t), out.data(), r.outputs));
      }
      most = std::max(most, largest_error(pools.slot(static_cast<int>(s)), state.data(), r.state));
      EXPECT_LT(most, 1e-5) << r.name << ", sequence " << s;
    }
  }
}

TEST_P(RecurrenceTest, EveryCutAndThreadCountGivesTheSameBits) {
  const std::vector<int> lengths{102, 1, 66, 64, 7};
  const PageTables tables(lengths, 2);
  for (const Recurrence& r : recurrences()) {
    const auto inputs = random_inputs(r, lengths);
    CpuOps one({.threads = 1, .scalar = scalar()});
    const Pools expected_pools(r, 7);
    const auto expected = run_cut(r, one, chunked(lengths, 102), tables, inputs, expected_pools);
    int threads = 0;
    for (const auto& [name, steps] : every_cut(lengths, 6)) {
      CpuOps ops(
          {.threads = std::array{1, 2, 3, 5}[static_cast<std::size_t>(threads++ % 4)], .scalar = scalar()});
      const Pools pools(r, 7);
      const auto outputs = run_cut(r, ops, steps, tables, inputs, pools);
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        EXPECT_EQ(first_difference(outputs[s], expected[s]), -1)
            << r.name << ", " << name << ", sequence " << s;
        EXPECT_EQ(first_difference(pools.slot(static_cast<int>(s)), expected_pools.slot(static_cast<int>(s)),
                                   r.state),
                  -1)
            << r.name << ", " << name << ": state of sequence " << s;
      }
      EXPECT_TRUE(r.state == 0 || std::isnan(*pools.slot(5)))
          << r.name << ": a slot nobody named was written";
    }
  }
}

// State after row i of a run = state of the run cut there; two slots for one row; the own slot may be among
// them; the slot the run started from is left alone otherwise.
TEST_P(RecurrenceTest, SavesTheStateAfterAnyRow) {
  constexpr int kRows = 20, kBefore = 9;
  const std::vector<int> lengths{kBefore + kRows};
  const PageTables tables(lengths, 3);
  CpuOps ops({.threads = 2, .scalar = scalar()});
  for (const Recurrence& r : recurrences()) {
    const auto inputs = random_inputs(r, lengths);
    const Pools single(r, 1 + kRows), pools(r, 3 + 2 * kRows);
    run_step(r, ops, {{.rows = kBefore, .saves = {{kBefore - 1, 0}}}}, tables, inputs, single);
    std::copy_n(single.slot(0), r.state, pools.slot(0));
    RowRun whole{.start = kBefore, .rows = kRows, .state_in = 0};
    for (int i = 0; i < kRows; ++i) {
      run_step(r, ops, {{.start = kBefore + i, .rows = 1, .state_in = i, .saves = {{0, i + 1}}}}, tables,
               inputs, single);
      whole.saves.insert(whole.saves.end(), {{i, 1 + 2 * i}, {i, 2 + 2 * i}});
    }
    run_step(r, ops, {whole}, tables, inputs, pools);
    for (int i = 0; i < kRows; ++i) {
      EXPECT_EQ(first_difference(pools.slot(1 + 2 * i), single.slot(i + 1), r.state), -1)
          << r.name << " after row " << i;
      EXPECT_EQ(first_difference(pools.slot(2 + 2 * i), single.slot(i + 1), r.state), -1)
          << r.name << " after row " << i;
    }
    EXPECT_EQ(first_difference(pools.slot(0), single.slot(0), r.state), -1)
        << r.name << ": the shared slot changed";
    // The own slot saved in mid-run still is what the run started from.
    whole.saves = {{2, 0}, {kRows - 1, 1}};
    run_step(r, ops, {whole}, tables, inputs, pools);
    EXPECT_EQ(first_difference(pools.slot(0), single.slot(3), r.state), -1) << r.name;
    EXPECT_EQ(first_difference(pools.slot(1), single.slot(kRows), r.state), -1) << r.name;
  }
}

// Speculation with random accept counts: a tape replayed later gives the bits of slots saved at every row.
TEST_P(RecurrenceTest, TapesEqualEagerSlots) {
  constexpr int kSequences = 4, kLength = 90, kEagerSlots = 1 + kSequences * (kTapeRows + 1);
  const std::vector<int> lengths(kSequences, kLength);
  const PageTables tables(lengths, 4);
  for (const Recurrence& r : recurrences()) {
    std::mt19937 random(5);
    CpuOps ops({.threads = 3, .scalar = scalar()});
    const Pools eager(r, kEagerSlots), lazy(r, 2 * kSequences, kSequences);
    // Every step feeds fresh inputs (drafts), so that rejected rows differ from what takes their place.
    std::vector<int> done(kSequences, 0), eager_in(kSequences, -1), lazy_in(kSequences, -1),
        replay(kSequences, 0);
    for (unsigned round = 0; *std::min_element(done.begin(), done.end()) + kTapeRows < kLength && round < 60;
         ++round) {
      const std::vector<HostTensor> inputs(kSequences, random_tensor({kLength, r.inputs}, 1000 + round));
      Step eager_step, lazy_step;
      std::vector<int> rows(kSequences);
      for (int s = 0; s < kSequences; ++s) {
        const auto at = static_cast<std::size_t>(s);
        if (done[at] + kTapeRows >= kLength || random() % 4 == 0) continue;
        rows[at] = 1 + static_cast<int>(random() % kTapeRows);
        RowRun run{.sequence = s, .start = done[at], .rows = rows[at], .state_in = eager_in[at]};
        // Slots of this round and of the one before alternate in halves of the sequence's own range.
        for (int i = 0; i < rows[at]; ++i) run.saves.emplace_back(i, 1 + s * (kTapeRows + 1) + i);
        eager_step.push_back(run);
        run.saves.clear();
        run.state_in = lazy_in[at];
        if (s != 3) {
          run.tape = s;
          run.replay = replay[at];
          run.state_out =
              s == 2 ? s + kSequences * static_cast<int>(round % 2) : s;  // in place, or to another slot
          lazy_in[at] = run.state_out;
        } else {
          run.saves = {{rows[at] - 1, s}};  // one without a tape among them: it accepts all
          lazy_in[at] = s;
        }
        lazy_step.push_back(run);
      }
      if (eager_step.empty()) continue;
      const HostTensor a = run_step(r, ops, eager_step, tables, inputs, eager);
      const HostTensor b = run_step(r, ops, lazy_step, tables, inputs, lazy);
      ASSERT_EQ(first_difference(a, b), -1) << r.name << ", round " << round;
      for (const RowRun& run : eager_step) {
        const auto at = static_cast<std::size_t>(run.sequence);
        // At least one row is accepted: the token that was certain.
        const int accepted =
            run.sequence == 3 ? run.rows : 1 + static_cast<int>(random() % static_cast<unsigned>(run.rows));
        done[at] += accepted;
        replay[at] = accepted;
        eager_in[at] = 1 + run.sequence * (kTapeRows + 1) + accepted - 1;
      }
    }
  }
}

TEST(RecurrenceDeathTest, NamesWhatIsWrong) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Recurrence r = delta_recurrence(1, 1, 16, 16);
  CpuOps ops({.threads = 1});
  const PageTables tables({40}, 1);
  const std::vector<HostTensor> inputs{random_tensor({40, r.inputs}, 1)};
  const Pools pools(r, 2);
  EXPECT_DEATH(run_step(r, ops, {{.rows = 17, .tape = 0}}, tables, inputs, pools),
               "17 rows for a tape of 16");
  EXPECT_DEATH(run_step(r, ops, {{.rows = 1, .saves = {{0, 2}}}}, tables, inputs, pools), "slot 2 of 2");
  Recurrence wide = r;
  wide.outputs = 20;
  EXPECT_DEATH(run_step(wide, ops, {{.rows = 1}}, tables, inputs, pools),
               "reshape|row of out 20, expected 16");
}

}  // namespace
}  // namespace strata::testing
