// Rows of x as products of many rows with 4-bit weights take them. A lane of a warp holds eight neighbouring
// codes of a row of w as pairs for two products of 16 k (four_bit.h), of which it would have pairs t and t +
// 4 of neighbouring k: so the pairs of x change places instead.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/linear.h"

namespace strata::cuda {
namespace {

// A thread: 32 columns.
__global__ void __launch_bounds__(256) reorder_kernel(ReorderArgs a) {
  begin_kernel();
  const int groups = static_cast<int>(a.out.stride / 32);
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x, row = i / groups;
  if (row >= a.rows) return;
  const int column = static_cast<int>(i - row * groups) * 32;
  const auto* from =
      reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(a.x.data) + row * a.x.stride + column);
  auto* to = reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(a.out.data) + row * a.out.stride + column);
  uint4 q[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) q[j] = column + 8 * j < a.columns ? from[j] : make_uint4(0, 0, 0, 0);
  to[0] = make_uint4(q[0].x, q[1].x, q[2].x, q[3].x);
  to[1] = make_uint4(q[0].y, q[1].y, q[2].y, q[3].y);
  to[2] = make_uint4(q[0].z, q[1].z, q[2].z, q[3].z);
  to[3] = make_uint4(q[0].w, q[1].w, q[2].w, q[3].w);
}

}  // namespace

void launch_reorder_rows(const ReorderArgs& args, Stream stream) {
  launch(reorder_kernel,
         static_cast<unsigned>(ceil_div(args.rows * (args.out.stride / 32), std::int64_t{256})), 256, 0,
         stream, args);
}

}  // namespace strata::cuda
