// add, multiply, scale, activate, glu: one element at a time.
#include "ops/cuda/device/map.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/elementwise.h"

namespace strata::cuda {
namespace {

// A functor of ElementwiseArgs: x <- f(x, y).
template <typename F>
struct Update {
  ElementwiseArgs a;
  F f;
  __device__ void operator()(std::int64_t row, int column, int n) const {
    Eight x = load8(a.x, row, column, n, a.wide);
    Eight y{};
    if (a.one) {
      const float v = load(a.y, row, 0);
#pragma unroll
      for (int i = 0; i < 8; ++i) y.v[i] = v;
    } else if (a.y.data != nullptr) {
      y = load8(a.y, row, column, n, a.wide);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = f(a, x.v[i], y.v[i]);
    store8(a.x, row, column, n, a.wide, x);
  }
};

struct Add {
  __device__ float operator()(const ElementwiseArgs& a, float x, float y) const { return x + y * a.factor; }
};
struct Multiply {
  __device__ float operator()(const ElementwiseArgs&, float x, float y) const { return x * y; }
};
struct Scale {
  __device__ float operator()(const ElementwiseArgs& a, float x, float) const {
    x *= a.factor;
    return a.limit != 0 ? a.limit * tanhf(x / a.limit) : x;
  }
};
struct Activate {
  __device__ float operator()(const ElementwiseArgs& a, float x, float) const { return activation_of(a.activation, x); }
};

struct Glu {
  ElementwiseArgs a;
  __device__ void operator()(std::int64_t row, int column, int n) const {
    const Eight gate = load8(a.x, row, column, n, a.wide);
    const Eight up = load8(a.x, row, column + a.columns, n, a.wide);
    Eight out;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out.v[i] = glu_of(a.activation, gate.v[i], up.v[i], a.limit);
    }
    store8(a.out, row, column, n, a.wide, out);
  }
};

template <typename F>
void update(const ElementwiseArgs& args, Stream stream) {
  map_rows(stream, args.rows, args.columns, Update<F>{args, {}});
}

}  // namespace

void launch_add(const ElementwiseArgs& args, Stream stream) { update<Add>(args, stream); }
void launch_multiply(const ElementwiseArgs& args, Stream stream) { update<Multiply>(args, stream); }
void launch_scale(const ElementwiseArgs& args, Stream stream) { update<Scale>(args, stream); }
void launch_activate(const ElementwiseArgs& args, Stream stream) { update<Activate>(args, stream); }
void launch_glu(const ElementwiseArgs& args, Stream stream) { map_rows(stream, args.rows, args.columns, Glu{args}); }

}  // namespace strata::cuda
