// combine: the weighted sum of a row's expert outputs, and the shared expert.
#include "ops/cuda/device/map.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/route.h"

namespace strata::cuda {
namespace {

struct Combine {
  CombineArgs a;
  __device__ void operator()(std::int64_t row, int column, int n) const {
    Eight sum{};
    const auto add = [&](const Eight& y, float w) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.v[i] += w * y.v[i];
    };
    if (a.wide && n == 8 && a.y.elem == kElemBF16) {
      constexpr int kTogether = 8;  // asked for before the first is used
      const auto* y = static_cast<const __nv_bfloat16*>(a.y.data) + row * a.k * a.y.stride + column;
      for (int j0 = 0; j0 < a.k; j0 += kTogether) {
        uint4 q[kTogether];
        float w[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (j0 + j >= a.k) continue;
          q[j] = *reinterpret_cast<const uint4*>(y + (j0 + j) * a.y.stride);
          w[j] = a.weight[row * a.k + j0 + j];
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (j0 + j < a.k) add(unpack8(q[j]), w[j]);
        }
      }
    } else {
      for (int j = 0; j < a.k; ++j) add(load8(a.y, row * a.k + j, column, n, a.wide), a.weight[row * a.k + j]);
    }
    if (a.shared.data != nullptr) {
      const Eight s = load8(a.shared, row, column, n, a.wide);
      const float w = a.gate.data == nullptr ? 1.0F : sigmoid(load(a.gate, row, 0));
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.v[i] += w * s.v[i];
    }
    store8(a.out, row, column, n, a.wide, sum);
  }
};

}  // namespace

void launch_combine(const CombineArgs& args, Stream stream) { map_rows(stream, args.rows, args.columns, Combine{args}); }

}  // namespace strata::cuda
