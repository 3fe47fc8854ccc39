// route: a warp per row chooses its experts; then the entries (row, choice) are sorted by expert, those of one in order: a count
// of each in every chunk of entries, then every chunk puts its own where they belong.
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

// counts [chunks, experts] of each chunk's entries.
template <int Experts>
__global__ void __launch_bounds__(256) count_kernel(RouteView a) {
  begin_kernel();
  __shared__ int count[Experts];
  for (int e = threadIdx.x; e < a.experts; e += 256) count[e] = 0;
  __syncthreads();
  const int begin = static_cast<int>(blockIdx.x) * kRouteChunk, end = min(begin + kRouteChunk, a.rows * a.k);
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += 256) atomicAdd(count + a.expert[i], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < a.experts; e += 256) a.counts[blockIdx.x * a.experts + e] = count[e];
}

// An entry's place: after those of lower experts, and of its own those of earlier chunks, warps and lanes.
template <int Experts>
__global__ void __launch_bounds__(kRouteChunk) place_kernel(RouteView a) {
  begin_kernel();
  constexpr int kThreads = kRouteChunk, kWarps = kThreads / 32;
  __shared__ std::uint16_t of_warp[kWarps][Experts];  // entries of an expert; then of those in earlier warps
  __shared__ int total[Experts], start[Experts], warp_sums[kWarps];  // of all chunks; of earlier ones, then the first place
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, chunk = blockIdx.x, chunks = gridDim.x,
            i = chunk * kThreads + thread;
  for (int e = lane; e < a.experts; e += 32) of_warp[warp][e] = 0;
  for (int e = thread; e < a.experts; e += kThreads) total[e] = start[e] = 0;
  __syncthreads();
  const bool inside = i < a.rows * a.k;
  const int expert = inside ? a.expert[i] : a.experts;
  const unsigned alike = __match_any_sync(~0U, expert);
  const int rank = __popc(alike & ((1U << lane) - 1));
  if (inside && rank == 0) of_warp[warp][expert] = static_cast<std::uint16_t>(__popc(alike));
  const int slices = max(kThreads / a.experts, 1), slice = thread / a.experts;
  if (chunks > 1 && slice < slices) {
    for (int e = thread - slice * a.experts; e < a.experts; e += kThreads) {
      int all = 0, earlier = 0;
#pragma unroll 16
      for (int c = slice; c < chunks; c += slices) {
        const int n = a.counts[c * a.experts + e];
        all += n;
        earlier += c < chunk ? n : 0;
      }
      atomicAdd(total + e, all);
      atomicAdd(start + e, earlier);
    }
  }
  __syncthreads();
  int base = 0;
  for (int e0 = 0; e0 < a.experts; e0 += kThreads) {
    const int e = e0 + thread;
    int own = 0;
    if (e < a.experts) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const int n = of_warp[w][e];
        of_warp[w][e] = static_cast<std::uint16_t>(own);
        own += n;
      }
      if (chunks > 1) own = total[e];
    }
    int sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int before = __shfl_up_sync(~0U, sum, o);
      if (lane >= o) sum += before;
    }
    __syncthreads();
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp && e < a.experts) {
        const int first = base + sum - own;
        start[e] += first;
        if (chunk == 0) a.first[e] = first;
      }
      base += warp_sums[w];
    }
  }
  if (chunk == 0 && thread == 0) a.first[a.experts] = base;
  __syncthreads();
  if (inside) a.order[start[expert] + of_warp[warp][expert] + rank] = i;
}

template <int Experts>
void sort(const RouteView& args, Stream stream) {
  const int chunks = ceil_div(args.rows * args.k, kRouteChunk);
  if (chunks > 1) launch(count_kernel<Experts>, static_cast<unsigned>(chunks), 256, 0, stream, args);
  launch(place_kernel<Experts>, static_cast<unsigned>(chunks), kRouteChunk, 0, stream, args);
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
  if (args.order != nullptr) args.experts > 256 ? sort<kMostExperts>(args, stream) : sort<256>(args, stream);
}

}  // namespace strata::cuda
