// Launches of mix_streams, inject_streams and gate_streams.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

// Of one op: the tensors it has not are null. S streams of `dim` channels in a row.
struct StreamsView {
  Rows out;         // [T, dim] (mix), [T, S * dim] (gate)
  Rows x;           // [T, S * dim] (mix, inject)
  Rows weight;      // [T, S * dim] (mix), [T, S] (inject)
  Rows delta;       // [T, dim] (inject), the value (gate)
  Rows key, query;  // [T, S * dim] (gate)
  std::int64_t rows = 0;
  int streams = 0, dim = 0;
};
void launch_mix_streams(const StreamsView& args, Stream stream);
void launch_inject_streams(const StreamsView& args, Stream stream);
void launch_gate_streams(const StreamsView& args, Stream stream);

}  // namespace strata::cuda
