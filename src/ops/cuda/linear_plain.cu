// linear and expert_linear for any element types and sizes: a warp per output, lanes over the inputs, f32 arithmetic.
#include <algorithm>

#include "ops/cuda/device/expert_tiles.cuh"
#include "ops/cuda/device/four_bit.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/linear.h"

namespace strata::cuda {
namespace {

constexpr int kRows = 4;  // rows of x that share a read of the weights

__global__ void __launch_bounds__(256) plain_kernel(LinearArgs a) {
  begin_kernel();
  const int lane = threadIdx.x % 32;
  const std::int64_t n = std::int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  std::int64_t begin = 0, end = a.rows, expert = 0;
  if (a.order != nullptr) {
    expert = nth_active_expert(a.first, a.w.experts, static_cast<int>(blockIdx.y));
    if (expert < 0) return;
    begin = a.first[expert];
    end = a.first[expert + 1];
  }
  if (n >= a.w.outputs) return;
  const std::int64_t row = expert * a.w.outputs + n;
  const float* scales = a.w.scales == nullptr ? nullptr : a.w.scales + row / a.w.scale_rows * a.w.scale_columns;
  const float bias = a.bias == nullptr ? 0.0F : a.bias[row];
  for (std::int64_t i = begin + blockIdx.z * kRows; i < end; i += gridDim.z * kRows) {
    std::int64_t to[kRows];
    float sums[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t entry = min(i + r, end - 1);
      to[r] = a.order == nullptr ? entry : a.order[entry];
    }
    for (std::int64_t k = lane; k < a.w.inputs; k += 32) {
      const float w = is_four_bit(a.w.data.elem) ? four_bit_weight(a.w.data, a.w.scales, row, k)
                      : scales == nullptr        ? load(a.w.data, row, k)
                                                 : load(a.w.data, row, f8_weight_place(k)) * scales[k / 128];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] += w * load(a.x, to[r] / a.divisor, k);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = warp_sum(sums[r]);
      if (lane == 0 && i + r < end) store(a.out, to[r], n, sum + bias);
    }
  }
}

}  // namespace

void launch_linear_plain(const LinearArgs& args, Stream stream) {
  const bool experts = args.order != nullptr;
  const auto groups = static_cast<unsigned>(experts ? std::min<std::int64_t>(args.w.experts, args.rows) : 1);
  const std::int64_t tiles = ceil_div(experts ? std::int64_t{args.longest} : args.rows, std::int64_t{kRows});
  const dim3 grid(static_cast<unsigned>(ceil_div(args.w.outputs, std::int64_t{8})), groups,
                  static_cast<unsigned>(std::min<std::int64_t>(tiles, experts ? 4 : 256)));
  launch(plain_kernel, grid, 256, 0, stream, args);
}

}  // namespace strata::cuda
