// What one sequence does to a recurrent state in a step: state_in, saves and tapes, as in ops/cpu/recurrent_run.h.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

struct Run {
  int begin, end;                  // rows of the sequence
  int state_in;                    // slot to start from; -1 = zeros
  int tape, replay, state_out;     // tape -1: none
  const int* saves;                // (row, slot) pairs from the first that lies in the run
  const int* last_save;

  // Calls store(slot) for every save after `row`, which must not go down from call to call.
  template <typename Store>
  __device__ __forceinline__ void save(int row, Store&& store) {
    while (saves != last_save && saves[0] == row) {
      store(saves[1]);
      saves += 2;
    }
  }
};

// Saves before the first of a row from `row` on.
__device__ __forceinline__ int saves_before(const BatchView& b, int row) {
  int low = 0, high = b.save_count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (b.saves[2 * middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
// The same by a whole warp: two rounds of loads for up to a thousand saves.
__device__ __forceinline__ int saves_before_by_warp(const BatchView& b, int row) {
  int low = 0, high = b.save_count;
  while (low < high) {
    const int step = (high - low + 31) / 32, at = low + static_cast<int>(threadIdx.x % 32) * step;
    const int less = __popc(__ballot_sync(~0U, at < high && b.saves[2 * at] < row));
    if (less == 0) break;
    high = min(high, low + less * step);
    low += (less - 1) * step + 1;
  }
  return low;
}

// Without its saves.
__device__ __forceinline__ Run start_of(const BatchView& b, int s) {
  Run run{b.first[s], b.first[s + 1], b.state_in[s], -1, 0, -1, nullptr, b.saves + 2 * b.save_count};
  if (b.tape != nullptr && (run.tape = b.tape[s]) >= 0) {
    run.replay = b.replay[s];
    run.state_out = b.state_out[s];
  }
  return run;
}
__device__ __forceinline__ Run run_of(const BatchView& b, int s) {
  Run run = start_of(b, s);
  run.saves = b.saves + 2 * saves_before(b, run.begin);
  return run;
}

}  // namespace strata::cuda
