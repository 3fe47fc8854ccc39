// linear and expert_linear for many rows: 128 or 256 outputs by Rows rows of x a tile, by wgmma. The matrix is the left
// operand (64 outputs a product), so that few rows of x are a narrow right operand and f8 weights can be widened in
// registers. One producer warpgroup fills a ring in shared memory (TMA; gathered rows of x by cp.async), two consumer
// warpgroups multiply. Blocks are persistent: the ring runs on while a tile is written. Sums over k in one fixed order.
#include <algorithm>

#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/mma.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/linear.h"

namespace strata::cuda {
namespace {

constexpr int kMostExperts = 1024;
constexpr int kConsumers = 2;  // warpgroups

template <int RowsT, int GroupsT, bool F8T, bool ExpertsT>
struct Config {
  static constexpr int kRows = RowsT;      // rows of x a tile
  static constexpr int kGroups = GroupsT;  // groups of 64 outputs a consumer
  static constexpr bool kF8 = F8T, kExperts = ExpertsT;
  static constexpr int kOutputs = kConsumers * kGroups * 64;
  static constexpr int kInputs = kF8 ? 128 : 64;                 // k of a stage: 128 bytes of a row of weights
  static constexpr int kWeightBytes = kOutputs * 128;
  static constexpr int kBox = kRows * 128;                       // 64 k of the rows of x
  static constexpr int kStageBytes = kWeightBytes + kBox * (kInputs / 64);
  static constexpr int kStaging = kConsumers * 4 * 16 * 64 * 2;  // a warp: 64 rows x 16 outputs of bf16
  static constexpr int kStages = std::min(10, (220 * 1024 - kStaging) / kStageBytes);
  static constexpr int kShared = 1024 + kStages * kStageBytes + kStaging;
};

// Where tile number `tile` lies; experts: rows of x are entries [row, end) of the order.
struct TilePlace {
  int expert, output;   // first output
  std::int64_t row, end;
};

template <typename C>
struct Schedule {
  const LinearArgs& a;
  const int* tiles_before;  // [experts + 1] row tiles of the experts before
  int output_tiles, total;

  __device__ TilePlace operator()(int tile) const {
    TilePlace p{};
    if constexpr (C::kExperts) {
      int low = 0, high = a.w.experts - 1;  // the last expert with tiles_before * output_tiles <= tile
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (tiles_before[middle] * output_tiles <= tile) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      p.expert = low;
      const int own = tiles_before[low + 1] - tiles_before[low], inside = tile - tiles_before[low] * output_tiles;
      p.output = inside / own * C::kOutputs;
      p.row = a.first[low] + std::int64_t{inside % own} * C::kRows;
      p.end = a.first[low + 1];
    } else {
      const int row_tiles = static_cast<int>(ceil_div(a.rows, std::int64_t{C::kRows}));
      p.output = tile / row_tiles * C::kOutputs;
      p.row = std::int64_t{tile % row_tiles} * C::kRows;
      p.end = a.rows;
    }
    return p;
  }
};

// tiles_before of every expert, by the whole block.
template <int Rows>
__device__ void count_tiles(const LinearArgs& a, int* tiles_before) {
  __shared__ int warp_sums[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
  int base = 0;
  for (int e0 = 0; e0 < a.w.experts; e0 += threads) {
    const int e = e0 + static_cast<int>(threadIdx.x);
    const int own = e < a.w.experts ? (a.first[e + 1] - a.first[e] + Rows - 1) / Rows : 0;
    int sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int before = __shfl_up_sync(~0U, sum, o);
      if (lane >= o) sum += before;
    }
    __syncthreads();
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int earlier = 0, all = 0;
    for (int w = 0; w < threads / 32; ++w) {
      earlier += w < warp ? warp_sums[w] : 0;
      all += warp_sums[w];
    }
    if (e < a.w.experts) tiles_before[e] = base + earlier + sum - own;
    base += all;
  }
  if (threadIdx.x == 0) tiles_before[a.w.experts] = base;
  __syncthreads();
}

template <typename C>
__device__ void produce(const LinearArgs& a, const TensorMap* weights, const TensorMap* rows, const Schedule<C>& schedule,
                        std::uint8_t* ring_bytes, std::uint64_t* full, std::uint64_t* empty) {
  const int thread = threadIdx.x % 128;
  if (!C::kExperts && thread >= 32) return;
  Ring<C::kStages> ring;
  for (int tile = blockIdx.x; tile < schedule.total; tile += gridDim.x) {
    const TilePlace p = schedule(tile);
    // Gathered rows: thread i copies piece i % 8 of rows i / 8, i / 8 + 16, ..
    constexpr int kEach = C::kRows / 16;
    const std::uint8_t* from[kEach];
    if constexpr (C::kExperts) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t entry = min(p.row + thread / 8 + 16 * j, p.end - 1);
        from[j] = static_cast<const std::uint8_t*>(a.x.data) + a.order[entry] / a.divisor * a.x.stride * 2 + thread % 8 * 16;
      }
    }
    for (int k = 0; k < a.w.inputs; k += C::kInputs, ring.next()) {
      barrier_wait(empty + ring.stage, ring.parity ^ 1);
      std::uint8_t* stage = ring_bytes + ring.stage * C::kStageBytes;
      if (thread == 0) {
        barrier_expect(full + ring.stage, C::kExperts ? C::kWeightBytes : C::kStageBytes);
#pragma unroll
        for (int part = 0; part < C::kOutputs; part += 64) {
          copy_box(stage + part * 128, weights, k, static_cast<int>(p.expert * a.w.outputs) + p.output + part, full + ring.stage);
        }
        if constexpr (!C::kExperts) {
#pragma unroll
          for (int box = 0; box < C::kInputs / 64; ++box)
            copy_box(stage + C::kWeightBytes + box * C::kBox, rows, k + box * 64, static_cast<int>(p.row), full + ring.stage);
        }
      }
      if constexpr (C::kExperts) {
#pragma unroll
        for (int box = 0; box < C::kInputs / 64; ++box) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) {
            const int row = thread / 8 + 16 * j, piece = thread % 8, column = k + box * 64 + piece * 8;
            copy_16(stage + C::kWeightBytes + box * C::kBox + row * 128 + (piece ^ (row % 8)) * 16,
                    from[j] + (k + box * 64) * 2, column >= a.w.inputs);
          }
        }
        barrier_arrive_copies(full + ring.stage);
      }
    }
  }
}

// Four k16 slices of 16 x 64 f8 weights of a warp as left operands. `rows`: shared address of the warp's 16 rows.
__device__ __forceinline__ void widen_slices(std::uint32_t rows, int half, std::uint32_t (&a)[4][4]) {
  const int lane = threadIdx.x % 32, row = lane % 16;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int piece = half * 4 + pair * 2 + lane / 16;
    std::uint32_t q[4];  // rows 0-7 and 8-15 of one piece of 16 bytes, then of the next
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                 : "r"(rows + row * 128 + (piece ^ (row % 8)) * 16));
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      widen_f8(q[2 * s], a[pair * 2 + s][0], a[pair * 2 + s][2]);
      widen_f8(q[2 * s + 1], a[pair * 2 + s][1], a[pair * 2 + s][3]);
    }
  }
}

template <typename C>
struct Consumer {
  using P = Product<C::kRows>;
  const LinearArgs& a;
  const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float sum[C::kGroups][C::kRows / 2];
  float scale[C::kGroups][2];  // f8: what `sum` still has to be multiplied by, rows g and g + 8

  __device__ explicit Consumer(const LinearArgs& args) : a(args) {}

  __device__ void multiply(std::uint32_t stage, bool keep) {
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < C::kGroups; ++i) {
        P::shared(sum[i], rows_descriptor(stage + (group * C::kGroups + i) * 64 * 128) + 2 * k,
                  rows_descriptor(stage + C::kWeightBytes) + 2 * k, keep || k > 0);
      }
    }
    products_commit();
  }

  // One block of 128 k: sums so far are brought to its scale first.
  __device__ void multiply_f8(std::uint32_t stage, bool keep, const float* const (&scales)[C::kGroups][2], int block) {
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
      float ratio[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float s = scales[i][half][block];
        ratio[half] = keep ? scale[i][half] / s : 0.0F;
        scale[i][half] = s;
      }
      if (!keep) continue;
#pragma unroll
      for (int j = 0; j < C::kRows / 2; ++j) sum[i][j] *= ratio[j / 2 % 2];
    }
    std::uint32_t left[2][4][4];
#pragma unroll
    for (int turn = 0; turn < 2 * C::kGroups; ++turn) {
      const int half = turn / C::kGroups, i = turn % C::kGroups;
      if (turn >= 2) products_wait<1>();
      widen_slices(stage + ((group * C::kGroups + i) * 64 + warp * 16) * 128, half, left[turn % 2]);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        P::registers(sum[i], left[turn % 2][k], rows_descriptor(stage + C::kWeightBytes + half * C::kBox) + 2 * k,
                     keep || half > 0 || k > 0);
      }
      products_commit();
    }
    products_wait<0>();
  }

  // Rows of this tile that exist: the j-th is row_of(j) of out.
  __device__ std::int64_t row_of(const TilePlace& p, int j) const {
    return p.row + j >= p.end ? -1 : C::kExperts ? a.order[p.row + j] : p.row + j;
  }

  __device__ void write(const TilePlace& p, std::uint8_t* staging) {
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
      const int n0 = p.output + (group * C::kGroups + i) * 64 + warp * 16;
      const std::int64_t w_row = std::int64_t{p.expert} * a.w.outputs + n0;
      float bias[2] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (a.bias != nullptr && n0 + g + half * 8 < a.w.outputs) bias[half] = a.bias[w_row + g + half * 8];
      }
#pragma unroll
      for (int j = 0; j < C::kRows / 2; ++j) {
        const int half = j / 2 % 2;
        sum[i][j] = sum[i][j] * (C::kF8 ? scale[i][half] : 1.0F) + bias[half];
      }
      const bool whole = a.out.elem == kElemBF16 && n0 + 16 <= a.w.outputs && a.out.stride % 8 == 0 &&
                         reinterpret_cast<std::uintptr_t>(a.out.data) % 16 == 0;
      whole ? write_rows(p, n0, sum[i], staging) : write_each(p, n0, sum[i]);
    }
  }

  __device__ void write_each(const TilePlace& p, int n0, const float (&d)[C::kRows / 2]) {
#pragma unroll
    for (int j = 0; j < C::kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = n0 + g + i / 2 * 8;
        const std::int64_t row = row_of(p, 8 * j + 2 * t + i % 2);
        if (row >= 0 && n < a.w.outputs) store(a.out, row, n, d[4 * j + i]);
      }
    }
  }

  // bf16 through the warp's staging [64 rows, 16 outputs]: whole sectors of 32 bytes to each row.
  __device__ void write_rows(const TilePlace& p, int n0, const float (&d)[C::kRows / 2], std::uint8_t* staging) {
    constexpr int kPart = C::kRows < 64 ? C::kRows : 64;
    std::uint8_t* own = staging + (group * 4 + warp) * 64 * 32;
#pragma unroll
    for (int part = 0; part < C::kRows / kPart; ++part) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kPart / 8; ++j) {  // 8 rows of x: two 8 x 8 blocks, transposed as they are stored
        const int at = (part * kPart / 8 + j) * 4, row = j * 8 + lane % 8, piece = lane / 8 % 2 ^ (row / 4 % 2);
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(shared_address(own + row * 32 + piece * 16)),
                     "r"(pack(d[at], d[at + 1])), "r"(pack(d[at + 2], d[at + 3]))
                     : "memory");
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kPart; j += 16) {
        const int r = j + lane / 2, piece = lane % 2 ^ (r / 4 % 2);
        const std::int64_t row = row_of(p, part * kPart + r);
        const uint4 q = *reinterpret_cast<const uint4*>(own + r * 32 + piece * 16);
        if (row >= 0) *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.out.data) + row * a.out.stride + n0 + lane % 2 * 8) = q;
      }
    }
  }
};

template <typename C>
__device__ void consume(const LinearArgs& a, const Schedule<C>& schedule, std::uint8_t* ring_bytes, std::uint8_t* staging,
                        std::uint64_t* full, std::uint64_t* empty) {
  Consumer<C> c(a);
  const bool leader = threadIdx.x % 32 == 0;  // of its warp
  Ring<C::kStages> ring;
  for (int tile = blockIdx.x; tile < schedule.total; tile += gridDim.x) {
    const TilePlace p = schedule(tile);
    if constexpr (C::kF8) {
      const float* scales[C::kGroups][2];
#pragma unroll
      for (int i = 0; i < C::kGroups; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int n = min(p.output + (c.group * C::kGroups + i) * 64 + c.warp * 16 + c.g + half * 8, static_cast<int>(a.w.outputs) - 1);
          scales[i][half] = a.w.scales + (std::int64_t{p.expert} * a.w.outputs + n) / a.w.scale_rows * a.w.scale_columns;
        }
      }
      for (int k = 0; k < a.w.inputs; k += C::kInputs, ring.next()) {
        barrier_wait(full + ring.stage, ring.parity);
        if constexpr (C::kExperts) fence_copies();
        c.multiply_f8(shared_address(ring_bytes + ring.stage * C::kStageBytes), k > 0, scales, k / 128);
        if (leader) barrier_arrive(empty + ring.stage);
      }
    } else {
      int before = -1;  // stage whose products may still be running
      for (int k = 0; k < a.w.inputs; k += C::kInputs, ring.next()) {
        barrier_wait(full + ring.stage, ring.parity);
        if constexpr (C::kExperts) fence_copies();
        c.multiply(shared_address(ring_bytes + ring.stage * C::kStageBytes), k > 0);
        products_wait<1>();
        if (leader && before >= 0) barrier_arrive(empty + before);
        before = ring.stage;
      }
      products_wait<0>();
      if (leader) barrier_arrive(empty + before);
    }
    c.write(p, staging);
  }
}

template <typename C>
__global__ void __launch_bounds__(128 * (kConsumers + 1), 1)
    tiles_kernel(LinearArgs a, const __grid_constant__ TensorMap weights, const __grid_constant__ TensorMap rows) {
  extern __shared__ std::uint8_t shared[];
  __shared__ std::uint64_t full[C::kStages], empty[C::kStages];
  __shared__ int tiles_before[C::kExperts ? kMostExperts + 1 : 1];
  std::uint8_t* ring_bytes = shared + (1024 - shared_address(shared) % 1024) % 1024;
  std::uint8_t* staging = ring_bytes + C::kStages * C::kStageBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      barrier_init(full + i, C::kExperts ? 129 : 1);
      barrier_init(empty + i, kConsumers * 4);
    }
    barrier_init_done();
    prefetch_map(&weights);
    prefetch_map(&rows);
  }
  begin_kernel();
  __syncthreads();
  Schedule<C> schedule{a, tiles_before, static_cast<int>(ceil_div(a.w.outputs, std::int64_t{C::kOutputs})), 0};
  if constexpr (C::kExperts) {
    count_tiles<C::kRows>(a, tiles_before);
    schedule.total = tiles_before[a.w.experts] * schedule.output_tiles;
  } else {
    schedule.total = static_cast<int>(ceil_div(a.rows, std::int64_t{C::kRows})) * schedule.output_tiles;
  }
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    produce<C>(a, &weights, &rows, schedule, ring_bytes, full, empty);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<C>(a, schedule, ring_bytes, staging, full, empty);
  }
}

template <int Rows, int Groups, bool F8, bool Experts>
void start(const LinearArgs& a, Stream stream) {
  using C = Config<Rows, Groups, F8, Experts>;
  const auto kernel = tiles_kernel<C>;
  static const bool sized = [&] {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kShared), "shared memory");
    return true;
  }();
  (void)sized;
  const std::int64_t w_rows = a.w.outputs * std::max(a.w.experts, 1);
  const TensorMap weights = make_tensor_map(a.w.data, w_rows, a.w.data.stride, 64);
  const TensorMap rows = Experts ? weights : make_tensor_map(a.x, a.rows, a.w.inputs, Rows);
  const std::int64_t output_tiles = ceil_div(a.w.outputs, std::int64_t{C::kOutputs});
  const std::int64_t most = (ceil_div(a.rows, std::int64_t{Rows}) + (Experts ? std::min<std::int64_t>(a.w.experts, a.rows) : 0)) * output_tiles;
  launch(kernel, static_cast<unsigned>(std::min<std::int64_t>(most, a.processors)), 128 * (kConsumers + 1), C::kShared, stream, a,
         weights, rows);
}

template <bool F8, bool Experts>
void pick(const LinearArgs& a, Stream stream) {
  // The largest tile that rows fill (an expert gets half as much again as the average) and of which there are enough.
  const std::int64_t rows = Experts ? 3 * a.rows / (2 * a.w.experts) : a.rows, matrices = Experts ? a.w.experts : 1;
  const auto enough = [&](int tile_rows, int outputs) {
    return matrices * ceil_div(rows, std::int64_t{tile_rows}) * ceil_div(a.w.outputs, std::int64_t{outputs}) * 4 >= a.processors * 3;
  };
  if (rows > 64 && enough(128, 256)) return start<128, 2, F8, Experts>(a, stream);
  if (rows > 32 && enough(64, 128)) return start<64, 1, F8, Experts>(a, stream);
  if (rows > 12 || !Experts) return start<32, 1, F8, Experts>(a, stream);
  start<16, 1, F8, Experts>(a, stream);
}

}  // namespace

void launch_linear_tiles(const LinearArgs& args, Stream stream) {
  const bool f8 = args.w.data.elem == kElemF8;
  if (args.order == nullptr) {
    f8 ? pick<true, false>(args, stream) : pick<false, false>(args, stream);
  } else {
    f8 ? pick<true, true>(args, stream) : pick<false, true>(args, stream);
  }
}

}  // namespace strata::cuda
