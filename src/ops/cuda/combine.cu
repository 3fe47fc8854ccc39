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
    for (int j = 0; j < a.k; ++j) {
      const Eight y = load8(a.y, row * a.k + j, column, n, a.wide);
      const float w = a.weight[row * a.k + j];
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.v[i] += w * y.v[i];
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
