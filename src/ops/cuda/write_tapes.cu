// Writes the inputs of a step to the tapes of its sequences, after the kernels that replay from them.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

__global__ void __launch_bounds__(256) write_kernel(TapeArgs a) {
  begin_kernel();
  const int row = blockIdx.x;
  const int s = a.batch.sequence[row], tape = a.batch.tape[s];
  if (tape < 0) return;
  std::int64_t to = std::int64_t{row - a.batch.first[s]} * a.width;
  for (int p = 0; p < 3; ++p) {
    for (int i = threadIdx.x; i < a.widths[p]; i += blockDim.x) store(a.tape, tape, to + i, load(a.parts[p], row, i));
    to += a.widths[p];
  }
}

}  // namespace

void launch_write_tapes(const TapeArgs& args, Stream stream) {
  launch(write_kernel, static_cast<unsigned>(args.batch.rows), 256, 0, stream, args);
}

}  // namespace strata::cuda
