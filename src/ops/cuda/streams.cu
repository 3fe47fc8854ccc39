// mix_streams and inject_streams: a thread per channel; gate_streams: a block per row and stream.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/streams.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) mix_kernel(StreamsView a) {
  begin_kernel();
  const std::int64_t t = blockIdx.x;
  for (int i = threadIdx.x; i < a.dim; i += kThreads) {
    float sum = 0;
    for (int s = 0; s < a.streams; ++s) sum += sigmoid(load(a.weight, t, s * a.dim + i)) * load(a.x, t, s * a.dim + i);
    store(a.out, t, i, sum / static_cast<float>(a.streams));
  }
}

__global__ void __launch_bounds__(kThreads) inject_kernel(StreamsView a) {
  begin_kernel();
  const std::int64_t t = blockIdx.x;
  for (int i = threadIdx.x; i < a.streams * a.dim; i += kThreads) {
    const float factor = 2.0F * sigmoid(load(a.weight, t, i / a.dim));
    store(a.x, t, i, load(a.x, t, i) + factor * load(a.delta, t, i % a.dim));
  }
}

__global__ void __launch_bounds__(kThreads) gate_kernel(StreamsView a) {
  begin_kernel();
  const std::int64_t t = blockIdx.x;
  const int base = static_cast<int>(blockIdx.y) * a.dim;
  float dot = 0;
  for (int i = threadIdx.x; i < a.dim; i += kThreads) dot += load(a.key, t, base + i) * load(a.query, t, base + i);
  dot = block_sum(dot) * rsqrtf(static_cast<float>(a.dim));
  const float root = sqrtf(fmaxf(fabsf(dot), 1e-6F));
  const float gate = sigmoid(dot > 0 ? root : dot < 0 ? -root : 0.0F);
  for (int i = threadIdx.x; i < a.dim; i += kThreads) store(a.out, t, base + i, gate * load(a.delta, t, i));
}

}  // namespace

void launch_mix_streams(const StreamsView& args, Stream stream) {
  launch(mix_kernel, static_cast<unsigned>(args.rows), kThreads, 0, stream, args);
}
void launch_inject_streams(const StreamsView& args, Stream stream) {
  launch(inject_kernel, static_cast<unsigned>(args.rows), kThreads, 0, stream, args);
}
void launch_gate_streams(const StreamsView& args, Stream stream) {
  launch(gate_kernel, dim3(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.streams)), kThreads, 0, stream, args);
}

}  // namespace strata::cuda
