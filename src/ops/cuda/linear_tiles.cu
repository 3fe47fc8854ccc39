// linear and expert_linear for many rows: 128 or 256 outputs by Rows rows of x a tile, by wgmma. The matrix is the left
// operand (64 outputs a product), so that few rows of x are a narrow right operand and f8 weights can be widened in
// registers. One producer warpgroup fills a ring in shared memory (TMA; gathered rows of x by cp.async), two consumer
// warpgroups multiply. Blocks are persistent: the ring runs on while a tile is written. Sums over k in one fixed order.
#include <algorithm>

#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/expert_tiles.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/mma.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/linear.h"

namespace strata::cuda {
namespace {

constexpr int kConsumers = 2;  // warpgroups

template <int RowsT, int GroupsT, bool F8T, bool ExpertsT, bool GluT>
struct Config {
  static_assert(!GluT || GroupsT == 2);
  static constexpr int kRows = RowsT;      // rows of x a tile
  static constexpr int kGroups = GroupsT;  // groups of 64 outputs a consumer
  static constexpr bool kF8 = F8T, kExperts = ExpertsT;
  static constexpr bool kGlu = GluT;       // a consumer's first group are gate rows, its second the up rows of the same outputs
  static constexpr int kRowsOfW = kConsumers * kGroups * 64, kOutputs = kGlu ? kRowsOfW / 2 : kRowsOfW;
  static constexpr int kInputs = kF8 ? 128 : 64;                 // k of a stage: 128 bytes of a row of weights
  static constexpr int kWeightBytes = kRowsOfW * 128;
  static constexpr int kBox = kRows * 128;                       // 64 k of the rows of x
  static constexpr int kStageBytes = kWeightBytes + kBox * (kInputs / 64);
  static constexpr int kStaging = kConsumers * 4 * 16 * 64 * 2;  // a warp: 64 rows x 16 outputs of bf16
  static constexpr int kStages = std::min(10, (220 * 1024 - kStaging) / kStageBytes);
  static constexpr int kShared = 1024 + kStages * kStageBytes + kStaging;
  // f8: whether products of one stage run under the widening of the next. The largest tiles have no registers for it, and
  // products enough.
  static constexpr bool overlap() { return kRows * kGroups <= 128; }
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
      const int low = expert_of_tile(tiles_before, a.w.experts, tile, output_tiles);
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

// First of the 64 rows of w, counted from those of the tile, that group `i` of a consumer multiplies.
template <typename C>
__device__ __forceinline__ std::int64_t weight_row(const LinearArgs& a, int consumer, int i) {
  return C::kGlu ? consumer * 64 + i * a.glu.outputs : (consumer * C::kGroups + i) * 64;
}
// Outputs of the product.
template <typename C>
__device__ __host__ __forceinline__ std::int64_t outputs_of(const LinearArgs& a) {
  return C::kGlu ? a.glu.outputs : a.w.outputs;
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
        for (int part = 0; part < C::kRowsOfW / 64; ++part) {
          copy_box(stage + part * 64 * 128, weights, k,
                   static_cast<int>(p.expert * a.w.outputs + weight_row<C>(a, part / C::kGroups, part % C::kGroups)) + p.output,
                   full + ring.stage);
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
  std::uint32_t left[2][4][4];  // f8: widened weights of two turns

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

  __device__ void rescale(bool keep, const float (&scales)[C::kGroups][2]) {
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
      float ratio[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float s = scales[i][j] != 0 ? scales[i][j] : keep ? scale[i][j] : 1.0F;  // 0: a block of zeros
        ratio[j] = keep ? __fdividef(scale[i][j], s) : 0.0F;
        scale[i][j] = s;
      }
      if (!keep) continue;
#pragma unroll
      for (int j = 0; j < C::kRows / 2; ++j) {
        asm volatile("" : "+f"(sum[i][j])::"memory");  // not before the wait
        sum[i][j] *= ratio[j / 2 % 2];
      }
    }
  }

  // One block of 128 k: sums so far are brought to its scale first. The products of a half run under the widening of the next,
  // also from stage to stage; `release` is called when those of the stage before have finished.
  template <typename Release>
  __device__ void multiply_f8(std::uint32_t stage, bool keep, const float (&scales)[C::kGroups][2], Release&& release) {
#pragma unroll
    for (int turn = 0; turn < 2 * C::kGroups; ++turn) {
      const int half = turn / C::kGroups, i = turn % C::kGroups;
      products_wait<1>();  // frees the operands of the turn before the last
      widen_slices(stage + ((group * C::kGroups + i) * 64 + warp * 16) * 128, half, left[turn % 2]);
      if (turn == 0) {  // sums may only be touched while no product is under way
        products_wait<0>();
        if constexpr (C::overlap()) release();
        rescale(keep, scales);
      }
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        P::registers(sum[i], left[turn % 2][k], rows_descriptor(stage + C::kWeightBytes + half * C::kBox) + 2 * k,
                     keep || half > 0 || k > 0);
      }
      products_commit();
    }
    if constexpr (!C::overlap()) products_wait<0>();
  }

  // Rows of this tile that exist: the j-th is row_of(j) of out.
  __device__ std::int64_t row_of(const TilePlace& p, int j) const {
    return p.row + j >= p.end ? -1 : C::kExperts ? a.order[p.row + j] : p.row + j;
  }

  __device__ void write(const TilePlace& p, std::uint8_t* staging) {
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
      const std::int64_t in_expert = p.output + weight_row<C>(a, group, i) + warp * 16, w_row = std::int64_t{p.expert} * a.w.outputs + in_expert;
      float bias[2] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (a.bias != nullptr && in_expert + g + half * 8 < a.w.outputs) bias[half] = a.bias[w_row + g + half * 8];
      }
#pragma unroll
      for (int j = 0; j < C::kRows / 2; ++j) {
        const int half = j / 2 % 2;
        asm volatile("" : "+f"(sum[i][j])::"memory");  // not before the wait
        sum[i][j] = sum[i][j] * (C::kF8 ? scale[i][half] : 1.0F) + bias[half];
      }
      if constexpr (!C::kGlu) write_group(p, static_cast<int>(in_expert), sum[i], staging);
    }
    if constexpr (C::kGlu) {
#pragma unroll
      for (int j = 0; j < C::kRows / 2; ++j) sum[0][j] = glu_of(a.glu.activation, sum[0][j], sum[1][j], a.glu.limit);
      write_group(p, p.output + group * 64 + warp * 16, sum[0], staging);
    }
  }

  __device__ void write_group(const TilePlace& p, int n0, const float (&d)[C::kRows / 2], std::uint8_t* staging) {
    const bool whole = a.out.elem == kElemBF16 && n0 + 16 <= outputs_of<C>(a) && a.out.stride % 8 == 0 &&
                       reinterpret_cast<std::uintptr_t>(a.out.data) % 16 == 0;
    whole ? write_rows(p, n0, d, staging) : write_each(p, n0, d);
  }

  __device__ void write_each(const TilePlace& p, int n0, const float (&d)[C::kRows / 2]) {
#pragma unroll
    for (int j = 0; j < C::kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = n0 + g + i / 2 * 8;
        const std::int64_t row = row_of(p, 8 * j + 2 * t + i % 2);
        if (row >= 0 && n < outputs_of<C>(a)) store(a.out, row, n, d[4 * j + i]);
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
          const std::int64_t n = min(p.output + weight_row<C>(a, c.group, i) + c.warp * 16 + c.g + half * 8, a.w.outputs - 1);
          scales[i][half] = a.w.scales + (std::int64_t{p.expert} * a.w.outputs + n) / a.w.scale_rows * a.w.scale_columns;
        }
      }
      float ahead[C::kGroups][2];  // scales of the next block, read early
      const auto read_scales = [&](int block) {
#pragma unroll
        for (int i = 0; i < 2 * C::kGroups; ++i) ahead[i / 2][i % 2] = scales[i / 2][i % 2][block];
      };
      read_scales(0);
      int before = -1;  // stage whose products may still be running
      for (int k = 0; k < a.w.inputs; k += C::kInputs, ring.next()) {
        float now[C::kGroups][2];
#pragma unroll
        for (int i = 0; i < 2 * C::kGroups; ++i) now[i / 2][i % 2] = ahead[i / 2][i % 2];
        if (k + C::kInputs < a.w.inputs) read_scales(k / 128 + 1);
        barrier_wait(full + ring.stage, ring.parity);
        if constexpr (C::kExperts) fence_copies();
        c.multiply_f8(shared_address(ring_bytes + ring.stage * C::kStageBytes), k > 0, now, [&] {
          if (leader && before >= 0) barrier_arrive(empty + before);
        });
        if constexpr (C::overlap()) {
          before = ring.stage;
        } else if (leader) {
          barrier_arrive(empty + ring.stage);
        }
      }
      if constexpr (C::overlap()) {
        products_wait<0>();
        if (leader) barrier_arrive(empty + before);
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
  Schedule<C> schedule{a, tiles_before, static_cast<int>(ceil_div(outputs_of<C>(a), std::int64_t{C::kOutputs})), 0};
  if constexpr (C::kExperts) {
    count_tiles(a.first, a.w.experts, C::kRows, tiles_before);
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

template <int Rows, int Groups, bool F8, bool Experts, bool Glu>
void start(const LinearArgs& a, Stream stream) {
  using C = Config<Rows, Groups, F8, Experts, Glu>;
  const auto kernel = tiles_kernel<C>;
  static const bool sized = [&] {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kShared), "shared memory");
    return true;
  }();
  (void)sized;
  const std::int64_t w_rows = a.w.outputs * std::max(a.w.experts, 1);
  const TensorMap weights = make_tensor_map(a.w.data, w_rows, a.w.data.stride, 64);
  const TensorMap rows = Experts ? weights : make_tensor_map(a.x, a.rows, a.w.inputs, Rows);
  const std::int64_t output_tiles = ceil_div(outputs_of<C>(a), std::int64_t{C::kOutputs});
  const std::int64_t most = (ceil_div(a.rows, std::int64_t{Rows}) + (Experts ? std::min<std::int64_t>(a.w.experts, a.rows) : 0)) * output_tiles;
  launch(kernel, static_cast<unsigned>(std::min<std::int64_t>(most, a.processors)), 128 * (kConsumers + 1), C::kShared, stream, a,
         weights, rows);
}

template <bool F8, bool Experts, bool Glu>
void pick(const LinearArgs& a, Stream stream) {
  // The largest tile that rows fill (an expert gets half as much again as the average) and of which there are enough.
  const std::int64_t rows = Experts ? 3 * a.rows / (2 * a.w.experts) : a.rows, matrices = Experts ? a.w.experts : 1;
  const auto enough = [&](int tile_rows, int w_rows) {
    return matrices * ceil_div(rows, std::int64_t{tile_rows}) * ceil_div(a.w.outputs, std::int64_t{w_rows}) * 4 >= a.processors * 3;
  };
  constexpr int kGroups = Glu || Experts ? 2 : 1;
  if (rows > 64 && enough(128, 256)) return start<128, 2, F8, Experts, Glu>(a, stream);
  if (rows > 32 && enough(64, 128 * kGroups)) return start<64, kGroups, F8, Experts, Glu>(a, stream);
  if (rows > 12 || !Experts) return start<32, kGroups, F8, Experts, Glu>(a, stream);
  start<16, kGroups, F8, Experts, Glu>(a, stream);
}

template <bool Glu>
void pick_types(const LinearArgs& a, Stream stream) {
  const bool f8 = a.w.data.elem == kElemF8;
  if (a.order == nullptr) {
    f8 ? pick<true, false, Glu>(a, stream) : pick<false, false, Glu>(a, stream);
  } else {
    f8 ? pick<true, true, Glu>(a, stream) : pick<false, true, Glu>(a, stream);
  }
}

}  // namespace

void launch_linear_tiles(const LinearArgs& args, Stream stream) {
  args.glu.outputs > 0 ? pick_types<true>(args, stream) : pick_types<false>(args, stream);
}

}  // namespace strata::cuda
