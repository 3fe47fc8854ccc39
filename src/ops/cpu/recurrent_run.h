// What one sequence does to a recurrent state in a step: the rules of state_in, saves and tapes in one place.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/batch.h"
#include "ops/cpu/thread_pool.h"

namespace strata {

// Read from a batch; its pointer lives as long as the batch's tensors.
struct RecurrentRun {
  int begin = 0, end = 0;               // rows of the sequence
  int state_in = -1;                    // slot to start from; -1 = zeros
  int tape = -1, replay = 0;            // tape of the sequence and its rows to run first
  int state_out = -1;                   // slot for the state after the replayed rows
  const std::int32_t* saves = nullptr;  // (row, slot) pairs of these rows
  int save_count = 0;
};

// Run of sequence s; checks slots against state [slots, ...] and the tape against tape [tapes, kTapeRows,
// ...] (or empty).
RecurrentRun recurrent_run(const Batch& batch, int s, const Tensor& state, const Tensor& tape);

// Asks for n floats ahead of their use: a piece of work reads a few lines of each row, too far apart for the
// hardware to see.
inline void prefetch(const float* from, std::int64_t n) {
  constexpr std::int64_t kLine = 16;  // floats
  for (std::int64_t i = 0; i < n; i += kLine) __builtin_prefetch(from + i);
}

// Drives a state through a run. State has load(slot) (-1 = zeros), replay(tape, i), expect(row) (to
// prefetch), step(row) and store(slot); it works on a copy, so slots change only by store. The tape is read
// here and written later (write_tapes).
template <typename State>
void run_recurrence(const RecurrentRun& run, State& state) {
  state.load(run.state_in);
  if (run.tape >= 0) {
    for (int i = 0; i < run.replay; ++i) state.replay(run.tape, i);
    if (run.state_out >= 0) state.store(run.state_out);
  }
  const std::int32_t* save = run.saves;
  const std::int32_t* const last = run.saves + 2 * static_cast<std::ptrdiff_t>(run.save_count);
  for (int row = run.begin; row < run.end; ++row) {
    if (row + 1 < run.end) state.expect(row + 1);
    state.step(row);
    for (; save != last && save[0] == row; save += 2) state.store(save[1]);
  }
}

// After every run has read its tape: writes the step's inputs to tape rows 0, 1, ... of each sequence that
// has one. copy(tape row, row of the batch).
template <typename Copy>
void write_tapes(ThreadPool& threads, const Batch& batch, const Tensor& tape, Copy&& copy) {
  if (batch.tape.empty() || tape.empty()) return;
  const auto* tapes = batch.tape.data<std::int32_t>();
  const auto* first = batch.first.data<std::int32_t>();
  threads.parallel_for(batch.shape.sequences, [&](std::int64_t s) {
    if (tapes[s] < 0) return;
    float* rows = tape.row<float>(tapes[s]);
    for (int row = first[s]; row < first[s + 1]; ++row) copy(rows + (row - first[s]) * tape[2], row);
  });
}

// Copies part of an input row to a place on a tape row; returns the place after it.
inline float* put(float* to, const float* from, std::int64_t n) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  return to + n;
}

}  // namespace strata
