#include "ops/cpu/recurrent_run.h"

#include <algorithm>

namespace strata {

RecurrentRun recurrent_run(const Batch& batch, int s, const Tensor& state, const Tensor& tape) {
  const std::int64_t slots = state.rows(), tapes = tape.empty() ? 0 : tape.rows();
  RecurrentRun run;
  const auto* first = batch.first.data<std::int32_t>();
  run.begin = first[s];
  run.end = first[s + 1];
  STRATA_CHECK(run.begin <= run.end && run.end <= batch.shape.rows, "sequence {}: rows [{}, {}) of {}", s,
               run.begin, run.end, batch.shape.rows);
  run.state_in = batch.state_in.data<std::int32_t>()[s];
  STRATA_CHECK(run.state_in < slots, "sequence {}: state slot {} of {}", s, run.state_in, slots);
  if (!batch.tape.empty() && (run.tape = batch.tape.data<std::int32_t>()[s]) >= 0) {
    run.replay = batch.replay.data<std::int32_t>()[s];
    run.state_out = batch.state_out.data<std::int32_t>()[s];
    STRATA_CHECK(run.tape < tapes, "sequence {}: tape {} of {}", s, run.tape, tapes);
    STRATA_CHECK(run.replay >= 0 && run.replay <= kTapeRows,
                 "sequence {}: {} rows to replay, a tape holds {}", s, run.replay, kTapeRows);
    STRATA_CHECK(run.end - run.begin <= kTapeRows, "sequence {}: {} rows for a tape of {}", s,
                 run.end - run.begin, kTapeRows);
    STRATA_CHECK(run.state_out < slots, "sequence {}: state slot {} of {}", s, run.state_out, slots);
  }
  if (batch.saves.empty() || batch.shape.saves == 0) return run;
  struct Save {
    std::int32_t row, slot;
  };
  const auto* saves = reinterpret_cast<const Save*>(batch.saves.data<std::int32_t>());
  const auto* last = saves + batch.shape.saves;
  const auto by_row = [](const Save& save, int row) { return save.row < row; };
  const auto* from = std::lower_bound(saves, last, run.begin, by_row);
  const auto* to = std::lower_bound(from, last, run.end, by_row);
  run.saves = &from->row;
  run.save_count = static_cast<int>(to - from);
  for (const auto* save = from; save != to; ++save) {
    STRATA_CHECK(save->slot >= 0 && save->slot < slots, "row {}: saved to slot {} of {}", save->row,
                 save->slot, slots);
  }
  return run;
}

}  // namespace strata
