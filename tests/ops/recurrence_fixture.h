// One face for the three recurrent ops, so that the same tests run on each: inputs of a row packed side by
// side.
#pragma once

#include <functional>

#include "ops/batch_fixture.h"
#include "ops/cpu/cpu_ops.h"

namespace strata::testing {

struct Recurrence {
  std::string name;
  int inputs = 0, outputs = 0, state = 0;  // floats of a row, of its result, of a slot
  int tape = 0;                            // floats of a tape row
  std::function<void(CpuOps&, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch&)> run;
  // The formula in double: one row in, state changed in place.
  std::function<void(double* out, const double* in, double* state)> formula;
};

Recurrence conv_recurrence(int channels, int width, bool bias, bool silu);
Recurrence delta_recurrence(int key_heads, int value_heads, int key_dim, int value_dim);
Recurrence ssd_recurrence(int heads, int head_dim, int groups, int state_dim, float dt_min, float dt_max);

}  // namespace strata::testing
