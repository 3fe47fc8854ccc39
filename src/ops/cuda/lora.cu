// lora and expert_lora: A x of every entry into scratch, a warp a line; then B of it, a thread an output. The grid depends on
// sizes alone and adapters are read from the table, so that a captured step replays with other ones.
#include <algorithm>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/lora.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSplits = 4;  // blocks that share the lines of an entry

// The pair of entry i; null = nothing to add.
__device__ __forceinline__ const LoraEntry* pair_of(const LoraArgs& a, std::int64_t i) {
  const int slot = a.adapters[i / a.choices];
  if (slot < 0) return nullptr;
  const LoraEntry* pair = a.table + slot;
  return pair->lines > 0 ? pair : nullptr;
}

__global__ void __launch_bounds__(kThreads) shrink_kernel(LoraArgs a) {
  begin_kernel();
  const std::int64_t i = blockIdx.x;
  const LoraEntry* pair = pair_of(a, i);
  if (pair == nullptr) return;
  const int lines = pair->lines, lane = threadIdx.x % 32;
  float* low = a.low + i * a.most_lines;
  if (a.tokens != nullptr) {
    const float* row = pair->a + a.tokens[i] * pair->a_stride;
    for (int l = blockIdx.y * kThreads + threadIdx.x; l < lines; l += kSplits * kThreads) low[l] = row[l];
    return;
  }
  const std::int64_t expert = a.experts == nullptr ? 0 : a.experts[i], x = i / a.divisor;
  for (int l = blockIdx.y * (kThreads / 32) + threadIdx.x / 32; l < lines; l += kSplits * (kThreads / 32)) {
    const float* row = pair->a + (expert * lines + l) * pair->a_stride;
    float sum = 0;
    for (std::int64_t k = lane; k < a.inputs; k += 32) sum += row[k] * load(a.x, x, k);
    sum = warp_sum(sum);
    if (lane == 0) low[l] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) expand_kernel(LoraArgs a) {
  begin_kernel();
  const std::int64_t i = blockIdx.x, n = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const LoraEntry* pair = pair_of(a, i);
  if (pair == nullptr || n >= a.outputs) return;
  const std::int64_t expert = a.experts == nullptr ? 0 : a.experts[i];
  const float* low = a.low + i * a.most_lines;
  float sum = 0;
  bool any = false;
  for (int p = 0; p < pair->parts; ++p) {
    const LoraEntry::Part& part = pair->part[p];
    if (n < part.output || n >= part.output + part.outputs) continue;
    const float* row = part.b + (expert * part.outputs + n - part.output) * part.stride;
    for (int r = 0; r < part.rank; ++r) sum += row[r] * low[part.line + r];
    any = true;
  }
  if (any) store(a.out, i, n, load(a.out, i, n) + sum);
}

}  // namespace

void launch_lora(const LoraArgs& args, Stream stream) {
  const auto entries = static_cast<unsigned>(args.entries);
  launch(shrink_kernel, dim3(entries, kSplits), kThreads, 0, stream, args);
  launch(expand_kernel, dim3(entries, static_cast<unsigned>(ceil_div(args.outputs, std::int64_t{kThreads}))), kThreads, 0, stream, args);
}

}  // namespace strata::cuda
