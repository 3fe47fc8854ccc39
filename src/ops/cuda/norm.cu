// rms_norm and add_rms_norm: a block per row, which stays in registers up to 8192 columns.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/planes.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/norm.h"

namespace strata::cuda {
namespace {

constexpr int kKept = 4;  // groups of eight columns a thread keeps: 4 x 8 x 256 threads

// The planes of a thread's groups of eight columns, `step` apart; two neighbours share groups of 16 (f8_weight_place).
template <int Planes>
__device__ __forceinline__ void store_planes(const NormArgs& a, std::int64_t row, int begin, int step, const uint4 (&packed)[kKept]) {
  __nv_bfloat162 largest = __float2bfloat162_rn(0);
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (begin + j * step >= a.columns) continue;
    take_largest(largest, packed[j].x), take_largest(largest, packed[j].y);
    take_largest(largest, packed[j].z), take_largest(largest, packed[j].w);
  }
  const PlaneScale scale(block_max(fmaxf(__low2float(largest), __high2float(largest))));
  if (threadIdx.x == 0) a.scales[row] = scale.scale;
  const bool odd = threadIdx.x % 2 == 1;
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    const int column = begin + j * step;
    if (j * step >= a.columns) break;
    std::uint32_t q[4][Planes];
    split(packed[j].x, scale.inverse, q[0]);
    split(packed[j].y, scale.inverse, q[1]);
    split(packed[j].z, scale.inverse, q[2]);
    split(packed[j].w, scale.inverse, q[3]);
#pragma unroll
    for (int plane = 0; plane < Planes; ++plane) {
      const std::uint32_t low = q[0][plane] | q[1][plane] << 16, high = q[2][plane] | q[3][plane] << 16;
      const std::uint32_t other = __shfl_xor_sync(~0U, odd ? low : high, 1), first = odd ? other : low, second = odd ? high : other;
      if (column < a.columns)
        *reinterpret_cast<uint2*>(a.planes + row * Planes * a.columns + (column / 128 * Planes + plane) * 128 + column % 128) =
            make_uint2(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
    }
  }
}

template <int Planes>
__global__ void __launch_bounds__(256) norm_kernel(NormArgs a) {
  begin_kernel();
  const std::int64_t row = blockIdx.x;
  const int step = static_cast<int>(blockDim.x) * 8;
  Eight kept[kKept];
  float sum = 0;
  const auto take = [&](int column) {
    const int n = min(8, a.columns - column);
    Eight x = load8(a.x, row, column, n, a.wide);
    if (a.delta.data != nullptr) {
      const Eight d = load8(a.delta, row, column, n, a.wide);
#pragma unroll
      for (int i = 0; i < 8; ++i) x.v[i] += d.v[i] * a.scale;
      store8(a.x, row, column, n, a.wide, x);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += x.v[i] * x.v[i];
    return x;
  };
  const int begin = static_cast<int>(threadIdx.x) * 8;
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (begin + j * step < a.columns) kept[j] = take(begin + j * step);
  }
  for (int c = begin + kKept * step; c < a.columns; c += step) take(c);
  const float factor = rsqrtf(block_sum(sum) / static_cast<float>(a.columns) + a.eps);
  const auto give = [&](int column, const Eight& x) {
    const int n = min(8, a.columns - column);
    Eight out;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float w = a.weight != nullptr && i < n ? a.weight[column + i] : 1.0F;
      out.v[i] = x.v[i] * factor * w;
    }
    store8(a.out, row, column, n, a.wide, out);
    return make_uint4(pack(out.v[0], out.v[1]), pack(out.v[2], out.v[3]), pack(out.v[4], out.v[5]), pack(out.v[6], out.v[7]));
  };
  uint4 packed[kKept] = {};
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (begin + j * step < a.columns) packed[j] = give(begin + j * step, kept[j]);
  }
  if constexpr (Planes > 0) {
    store_planes<Planes>(a, row, begin, step, packed);
  } else {
    for (int c = begin + kKept * step; c < a.columns; c += step)
      give(c, load8(a.x, row, c, min(8, a.columns - c), a.wide));
  }
}

// Groups of 8, 16, .. 256 channels: eight of them a lane, 32 lanes over as many groups as they hold; nothing is read twice.
template <bool Silu>
__global__ void __launch_bounds__(256) gated_norm_narrow_kernel(GatedNormView a) {
  begin_kernel();
  const int lanes = a.group / 8, per_row = a.channels / 8;
  const std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = item / per_row;
  const int column = static_cast<int>(item - row * per_row) * 8;
  const bool live = row < a.rows;
  Eight x{}, g;
  if (live) x = load8(a.x, row, column, 8, a.wide);
  if (live && a.gate.data != nullptr) g = load8(a.gate, row, column, 8, a.wide);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    g.v[i] = live && a.gate.data != nullptr ? activation_of(Silu ? 0 : a.activation, g.v[i]) : 1.0F;
    if (a.gate_first) x.v[i] *= g.v[i];
    sum += x.v[i] * x.v[i];
  }
  for (int o = lanes / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(~0U, sum, o);
  const float factor = rsqrtf(sum / static_cast<float>(a.group) + a.eps);
  if (!live) return;
  const float* weight = a.weight + column % a.period;
#pragma unroll
  for (int i = 0; i < 8; ++i) x.v[i] *= factor * weight[i] * (a.gate_first ? 1.0F : g.v[i]);
  store8(a.out, row, column, 8, a.wide, x);
}

// A warp per group of channels.
template <bool Silu>
__global__ void __launch_bounds__(256) gated_norm_kernel(GatedNormView a) {
  begin_kernel();
  const int groups = a.channels / a.group, lane = threadIdx.x % 32;
  const std::int64_t item = std::int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (item >= a.rows * groups) return;
  const std::int64_t row = item / groups;
  const int base = static_cast<int>(item - row * groups) * a.group;
  const auto gated = [&](int column, Eight& g) {
    const int n = min(8, a.group - column);
    Eight x = load8(a.x, row, base + column, n, a.wide);
    if (a.gate.data != nullptr) g = load8(a.gate, row, base + column, n, a.wide);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      g.v[i] = i >= n ? 0.0F : a.gate.data != nullptr ? activation_of(Silu ? 0 : a.activation, g.v[i]) : 1.0F;
      if (a.gate_first) x.v[i] *= g.v[i];
    }
    return x;
  };
  float sum = 0;
  for (int c = lane * 8; c < a.group; c += 256) {
    Eight g;
    const Eight x = gated(c, g);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += x.v[i] * x.v[i];
  }
  const float factor = rsqrtf(warp_sum(sum) / static_cast<float>(a.group) + a.eps);
  const float* weight = a.weight + base % a.period;
  for (int c = lane * 8; c < a.group; c += 256) {
    const int n = min(8, a.group - c);
    Eight g, out = gated(c, g);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float w = i < n ? weight[c + i] : 0.0F;
      out.v[i] *= factor * w * (a.gate_first ? 1.0F : g.v[i]);
    }
    store8(a.out, row, base + c, n, a.wide, out);
  }
}

}  // namespace

void launch_norm(const NormArgs& args, Stream stream) {
  const int threads = args.columns <= 256 ? 32 : args.columns <= 1024 ? 128 : 256;
  const auto kernel = args.count == 0 ? norm_kernel<0> : args.count == 1 ? norm_kernel<1> : norm_kernel<2>;
  launch(kernel, static_cast<unsigned>(args.rows), threads, 0, stream, args);
}

void launch_gated_norm(const GatedNormView& args, Stream stream) {
  if (args.group >= 8 && args.group <= 256 && (args.group & (args.group - 1)) == 0) {
    const std::int64_t threads = args.rows * (args.channels / 8);
    const auto narrow = args.activation == 0 ? gated_norm_narrow_kernel<true> : gated_norm_narrow_kernel<false>;
    const int block = threads < 256 * 132 ? 64 : 256;
    launch(narrow, static_cast<unsigned>(ceil_div(threads, std::int64_t{block})), block, 0, stream, args);
    return;
  }
  const std::int64_t items = args.rows * (args.channels / args.group);
  const int warps = items < 8 * 132 ? 1 : 8;
  const auto kernel = args.activation == 0 ? gated_norm_kernel<true> : gated_norm_kernel<false>;
  launch(kernel, static_cast<unsigned>(ceil_div(items, std::int64_t{warps})), warps * 32, 0, stream, args);
}

}  // namespace strata::cuda
