// Writes the inputs of a step to the tapes of its sequences, after the kernels that replay from them.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 128;

// Eight elements a thread: what a row takes is little, and no load waits for another.
__global__ void __launch_bounds__(kThreads) write_kernel(TapeArgs a) {
  begin_kernel();
  const int row = blockIdx.x, at = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  const int s = a.batch.sequence[row], tape = a.batch.tape[s];
  if (tape < 0 || at >= a.width) return;
  const std::int64_t to = std::int64_t{row - a.batch.first[s]} * a.width;
  int begin = 0;  // of the part
  for (int p = 0; p < 3; begin += a.widths[p++]) {
    const int from = at - begin;
    if (from >= 0 && from + 8 <= a.widths[p]) return store8(a.tape, tape, to + at, 8, a.wide, load8(a.parts[p], row, from, 8, a.wide));
    for (int i = max(from, 0); i < min(from + 8, a.widths[p]); ++i) store(a.tape, tape, to + begin + i, load(a.parts[p], row, i));
  }
}

}  // namespace

void launch_write_tapes(const TapeArgs& args, Stream stream) {
  launch(write_kernel, dim3(static_cast<unsigned>(args.batch.rows), static_cast<unsigned>(ceil_div(args.width, 8 * kThreads))), kThreads, 0,
         stream, args);
}

}  // namespace strata::cuda
