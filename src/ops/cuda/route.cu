// route: a warp per row chooses its experts; then a block per expert lists the entries that chose it, in order.
#include "ops/cuda/device/choose.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/route.h"

namespace strata::cuda {
namespace {

// A warp per row.
template <int PerLane, int Warps>
__global__ void __launch_bounds__(Warps * 32) choose_kernel(RouteView a) {
  begin_kernel();
  __shared__ ChooseShared<PerLane, Warps> s;
  const int warp = threadIdx.x / 32, row = blockIdx.x * Warps + warp;
  if (row < a.rows) choose<PerLane>(a, row, s.choice[warp], s.totals[warp], s.weights[warp], s.chosen[warp]);
}

// One block does it all for a few rows: chooses, and sorts the choices in shared memory.
constexpr int kFewRows = 32, kFewEntries = 512;
template <int PerLane>
__global__ void __launch_bounds__(512) few_kernel(RouteView a) {
  begin_kernel();
  __shared__ ChooseShared<PerLane, 16> s;
  __shared__ int expert[kFewEntries];
  const int warp = threadIdx.x / 32, entries = a.rows * a.k;
  for (int row = warp; row < a.rows; row += 16) {
    __syncwarp();
    choose<PerLane>(a, row, s.choice[warp], s.totals[warp], s.weights[warp], s.chosen[warp]);
    for (int j = threadIdx.x % 32; j < a.k; j += 32) expert[row * a.k + j] = s.chosen[warp][j];
  }
  __syncthreads();
  for (int e = threadIdx.x; e <= a.experts; e += 512) {
    int below = 0;
    for (int i = 0; i < entries; ++i) below += expert[i] < e;
    a.first[e] = below;
  }
  for (int i = threadIdx.x; i < entries; i += 512) {
    int place = 0;
    for (int j = 0; j < entries; ++j) place += expert[j] < expert[i] || (expert[j] == expert[i] && j < i);
    a.order[place] = i;
  }
}

// Block e lists the entries of expert e: entries of lower experts come before, equal ones stay in order. A thread takes four
// neighbours at a time.
__global__ void __launch_bounds__(256) sort_kernel(RouteView a) {
  begin_kernel();
  __shared__ int below_of[8], equal_of[8];
  const int e = blockIdx.x, entries = a.rows * a.k, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto four = [&](int i) {
    if (i + 4 <= entries) return *reinterpret_cast<const int4*>(a.expert + i);
    const auto one = [&](int j) { return j < entries ? a.expert[j] : a.experts; };
    return make_int4(one(i), one(i + 1), one(i + 2), one(i + 3));
  };
  int below = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * 4; i < entries; i += 1024) {
    const int4 q = four(i);
    below += (q.x < e) + (q.y < e) + (q.z < e) + (q.w < e);
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) below += __shfl_xor_sync(~0U, below, o);
  if (lane == 0) below_of[warp] = below;
  __syncthreads();
  below = 0;
  for (int w = 0; w < 8; ++w) below += below_of[w];
  if (threadIdx.x == 0) {
    a.first[e] = below;
    if (e == a.experts - 1) a.first[a.experts] = entries;
  }
  int at = below;
  for (int base = 0; base < entries; base += 1024) {
    const int i = base + static_cast<int>(threadIdx.x) * 4;
    const int4 q = i < entries ? four(i) : make_int4(a.experts, a.experts, a.experts, a.experts);
    const bool equal[4] = {q.x == e, q.y == e, q.z == e, q.w == e};
    const int own = equal[0] + equal[1] + equal[2] + equal[3];
    int sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int before = __shfl_up_sync(~0U, sum, o);
      if (lane >= o) sum += before;
    }
    if (lane == 31) equal_of[warp] = sum;
    __syncthreads();
    int place = at + sum - own, all = 0;
    for (int w = 0; w < 8; ++w) {
      place += w < warp ? equal_of[w] : 0;
      all += equal_of[w];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (equal[j]) a.order[place++] = i + j;
    }
    at += all;
    __syncthreads();
  }
}

// One thread for each entry (row, expert), and for each start.
__global__ void __launch_bounds__(256) all_kernel(RouteView a) {
  begin_kernel();
  const int i = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x);
  if (i <= a.experts) a.first[i] = i * a.rows;
  if (i >= a.rows * a.experts) return;
  a.expert[i] = i % a.experts;
  a.weight[i] = 1.0F;
  a.order[i] = i % a.rows * a.experts + i / a.rows;
}

}  // namespace

void launch_route_all(const RouteView& args, Stream stream) {
  const int threads = args.rows * args.experts > args.experts ? args.rows * args.experts : args.experts + 1;
  launch(all_kernel, static_cast<unsigned>((threads + 255) / 256), 256, 0, stream, args);
}

void launch_route(const RouteView& args, Stream stream) {
  if (args.rows == 0) return;
  const bool many = args.experts > 256 || args.groups > 128;
  if (args.order != nullptr && args.rows <= kFewRows && args.rows * args.k <= kFewEntries && !many) {
    launch(few_kernel<8>, 1, 512, 0, stream, args);
    return;
  }
  const auto blocks = static_cast<unsigned>(ceil_div(args.rows, many ? 2 : 8));
  many ? launch(choose_kernel<32, 2>, blocks, 64, 0, stream, args) : launch(choose_kernel<8, 8>, blocks, 256, 0, stream, args);
  if (args.order != nullptr) launch(sort_kernel, static_cast<unsigned>(args.experts), 256, 0, stream, args);
}

}  // namespace strata::cuda
