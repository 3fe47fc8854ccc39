// Products of many rows: 128 or 256 outputs by up to kRows rows of x a tile, by wgmma. The matrix is the left
// operand (64 outputs a product), so that few rows of x are a narrow right operand. One producer warpgroup
// fills a ring in shared memory (TMA; gathered rows of x by cp.async), two consumer warpgroups multiply.
// Blocks are persistent: the ring runs on while a tile is written. Sums over k in one fixed order.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ops/cuda/device/tile_consumer.cuh"
#include "ops/cuda/device/tile_plan.cuh"

namespace strata::cuda {

template <typename C>
__device__ __forceinline__ void produce(const LinearArgs& a, const TensorMap* weights, const TensorMap* rows,
                                        const Schedule<C>& schedule, std::uint8_t* ring_bytes,
                                        TileShared<C>& s) {
  const int thread = threadIdx.x % 128;
  if (thread >= C::kProducers) return;
  const bool copies = thread < (C::kFour ? 32 : 1);  // weights
  const auto copy_weights = [&](const TilePlace& p, int block, int stage) {
    std::uint8_t* to = ring_bytes + stage * C::kStageBytes;
    const auto row_of = [&](int part) {
      return p.expert * a.w.outputs + weight_row<C>(a, part / C::kGroups, part % C::kGroups) + p.output;
    };
    if (thread == 0) barrier_expect(s.full + stage, C::kExperts ? C::kWeightBytes : C::kStageBytes);
    if constexpr (C::kFour) {
      constexpr int kBytes = four_block_bytes(C::kElem), kLanes = C::kRowsOfW / kFourRows;
      if (thread >= kLanes) return;
      // Beyond the last row: any rows, that nobody looks at.
      const std::int64_t last = a.w.outputs * (C::kExperts ? a.w.experts : 1) - 1,
                         row = min(row_of(thread / 4) + thread % 4 * kFourRows, last);
      copy_bytes(to + thread * kBytes,
                 static_cast<const std::uint8_t*>(a.w.data.data) + row / kFourRows * a.w.data.stride +
                     block * kBytes,
                 kBytes, s.full + stage);
    } else {
#pragma unroll
      for (int part = 0; part < C::kRowsOfW / 64; ++part)
        copy_box(to + part * 64 * 128, weights, block * C::kInputs, static_cast<int>(row_of(part)),
                 s.full + stage);
    }
  };
  int early = 0;  // stages whose weights are under way
  if constexpr (C::kEarly) {
    if (copies && schedule.first < schedule.total) {
      const TilePlace p = schedule(schedule.first);
      for (; early < min(C::kStages, schedule.end - schedule.begin); ++early)
        copy_weights(p, schedule.begin + early, early);
    }
    begin_kernel();
  }
  Ring<C::kStages> ring;
  Ring<2> slot;
  for (int tile = schedule.first; tile < schedule.total; tile += schedule.step, slot.next()) {
    const TilePlace p = schedule(tile);
    const int count = static_cast<int>(p.end - p.row),
              width = (count + C::kWidthStep - 1) / C::kWidthStep * C::kWidthStep;
    const auto row_of = [&](int r) { return C::kExperts ? a.order[p.row + r] : static_cast<int>(p.row) + r; };
    // Gathered rows: thread i copies piece i % 8 of rows i / 8, i / 8 + 16, ..
    constexpr int kEach = C::kRows / 16, kBytes = C::kF8 ? 1 : 2;
    unsigned from[kEach];  // in units of 16 bytes
    if constexpr (C::kExperts) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int row = row_of(min(thread / 8 + 16 * j, count - 1)) / a.divisor;
        from[j] = static_cast<unsigned>(row * (a.x.stride * kBytes / 16) + thread % 8);
      }
    }
    for (int block = schedule.begin; block < schedule.end; ++block, ring.next()) {
      barrier_wait(s.empty + ring.stage, ring.parity ^ 1);
      std::uint8_t* boxes = ring_bytes + ring.stage * C::kStageBytes + C::kWeightBytes;
      if (copies) {
        if (early > 0) {
          --early;
        } else {
          copy_weights(p, block, ring.stage);
        }
      }
      if (thread == 0) {
        if constexpr (!C::kExperts) {
#pragma unroll
          for (int box = 0; box < C::kBoxes; ++box)
            copy_box(boxes + box * C::kBox, rows, (block * C::kBoxes + box) * (128 / kBytes),
                     static_cast<int>(p.row), s.full + ring.stage);
        }
      }
      if constexpr (C::kExperts) {
#pragma unroll
        for (int box = 0; box < C::kBoxes; ++box) {
          const int at = (block * C::kBoxes + box) * 8;  // of the pieces of a row
          const bool fill = !C::kF8 && !C::kFour && (at + thread % 8) * 16 >= a.w.inputs * kBytes;
#pragma unroll
          for (int j = 0; j < kEach; ++j) {
            const int row = thread / 8 + 16 * j;
            if (16 * j < width)
              copy_16(boxes + box * C::kBox + row * 128 + (thread % 8 ^ (row % 8)) * 16,
                      static_cast<const uint4*>(a.x.data) + from[j] + at, fill);
          }
        }
        barrier_arrive_copies(s.full + ring.stage);
      }
      if (block > schedule.begin) continue;
      barrier_wait(s.info_empty + slot.stage, slot.parity ^ 1);
      TileInfo<C>& info = s.info[slot.stage];
#pragma unroll
      for (int r = thread; r < C::kRows; r += C::kProducers) {
        const int row = r < count ? row_of(r) : -1;
        info.row[r] = row;
        if constexpr (C::kF8)
          info.scale[r] = r < count ? a.x_scales[C::kExperts ? row / a.divisor : row] : 0.0F;
      }
      if (thread == 0) info.expert = p.expert, info.output = p.output, info.width = width;
      barrier_arrive(s.info_full + slot.stage);
    }
  }
}

// f with the width as a constant.
template <typename C, typename F>
__device__ __forceinline__ void with_width(int width, F&& f) {
  if (width == C::kRows) return f(std::integral_constant<int, C::kRows>{});
  if constexpr (C::kRows == 128) {
    if (width == 96) return f(std::integral_constant<int, 96>{});
    if (width == 64) return f(std::integral_constant<int, 64>{});
  }
  f(std::integral_constant<int, C::kWidthStep>{});
}

// Multiply::run<N>(consumer, info, begin, end, sum): the sums over stages [begin, end) of a tile of N rows,
// each taken and released.
template <typename C, typename Multiply>
__global__ void __launch_bounds__(128 * (kConsumers + 1), C::kBlocks)
    tiles_kernel(LinearArgs a, const __grid_constant__ TensorMap weights,
                 const __grid_constant__ TensorMap rows) {
  extern __shared__ std::uint8_t shared[];
  __shared__ TileShared<C> s;
  std::uint8_t* ring_bytes = shared + (1024 - shared_address(shared) % 1024) % 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      barrier_init(s.full + i, C::kExperts ? 129 : 1);
      barrier_init(s.empty + i, kConsumers * 4);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(s.info_full + i, C::kProducers);
      barrier_init(s.info_empty + i, kConsumers * 4);
    }
    barrier_init_done();
    if constexpr (!C::kFour) prefetch_map(&weights);
    if constexpr (!C::kExperts) prefetch_map(&rows);
  }
  if constexpr (!C::kEarly) begin_kernel();
  if (C::kExperts && a.x_planes.data != nullptr) wait_for_previous();  // the entries may be the kernel before's
  __syncthreads();
  const Schedule<C> schedule(a, s);
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    produce<C>(a, &weights, &rows, schedule, ring_bytes, s);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(C::kRegisters));
    if constexpr (C::kEarly) begin_kernel();
    Consumer<C> c(a, s, ring_bytes, ring_bytes + C::kStages * C::kStageBytes);
    Ring<2> slot;
    for (int tile = schedule.first; tile < schedule.total; tile += schedule.step, slot.next()) {
      barrier_wait(s.info_full + slot.stage, slot.parity);
      const TileInfo<C>& info = s.info[slot.stage];
      with_width<C>(info.width, [&](auto width) {
        constexpr int N = decltype(width)::value;
        float sum[C::kGroups][N / 2];
        Multiply::template run<N>(c, info, schedule.begin, schedule.end, sum);
        if constexpr (C::kSplit > 1 && N == C::kRows) {
          if (a.split > 1) {
            float own[C::kGroups][8];
            c.template add_up<N>(sum, schedule.rank, own);
            return c.template write<16>(info, schedule.rank * 16, own);
          }
        }
        c.template write<N>(info, 0, sum);
      });
      __syncwarp();
      if (c.lane == 0) barrier_arrive(s.info_empty + slot.stage);
    }
  }
}

template <typename C, typename Multiply>
void start_tiles(const LinearArgs& a, Stream stream) {
  constexpr auto kernel = tiles_kernel<C, Multiply>;
  allow_shared<kernel, C::kShared>();
  const std::int64_t w_rows = a.w.outputs * std::max(a.w.experts, 1);
  TensorMap weights{}, rows{};
  if constexpr (!C::kFour) weights = make_tensor_map(a.w.data, w_rows, a.w.data.stride, 64);
  if constexpr (!C::kExperts)
    rows = make_tensor_map(a.x, a.rows, C::kF8 || C::kFour ? a.x.stride : a.w.inputs, C::kRows);
  const std::int64_t output_tiles = ceil_div(outputs_of<C>(a), std::int64_t{C::kOutputs});
  const std::int64_t most = (ceil_div(a.rows, std::int64_t{C::kRows}) +
                             (C::kExperts ? std::min<std::int64_t>(a.w.experts, a.rows) : 0)) *
                            output_tiles;
  LinearArgs args = a;
  if (C::kSplit > 1 && a.rows <= C::kRows && a.rows > C::kRows - C::kWidthStep &&
      a.w.inputs > (C::kSplit - 1) * C::kInputs && most * C::kSplit <= a.processors * C::kBlocks)
    args.split = C::kSplit;
  launch_clusters(
      kernel, static_cast<unsigned>(std::min<std::int64_t>(most * args.split, a.processors * C::kBlocks)),
      static_cast<unsigned>(args.split), 128 * (kConsumers + 1), C::kShared, stream, args, weights, rows);
}

// Picks tiles for `Planes` (of TileConfig): the largest that rows fill (an expert
// gets half as much again as the average) and of which there are enough.
template <int Planes, bool Experts, bool Glu, template <typename> typename Multiply>
void pick_tiles(const LinearArgs& a, Stream stream) {
  const std::int64_t rows = Experts ? 3 * a.rows / (2 * a.w.experts) : a.rows,
                     matrices = Experts ? a.w.experts : 1;
  const auto enough = [&](int tile_rows, int w_rows) {
    return matrices * ceil_div(rows, std::int64_t{tile_rows}) * ceil_div(a.w.outputs, std::int64_t{w_rows}) *
               4 >=
           a.processors * 3;
  };
  constexpr int kGroups = Glu || Experts ? 2 : 1;
  if (rows > 64 && enough(128, 256)) {
    using C = TileConfig<128, 2, Planes, Experts, Glu>;
    return start_tiles<C, Multiply<C>>(a, stream);
  }
  if (rows > 32 && (rows <= 64 || enough(64, 128 * kGroups))) {
    using C = TileConfig<64, kGroups, Planes, Experts, Glu>;
    return start_tiles<C, Multiply<C>>(a, stream);
  }
  using C = TileConfig<32, kGroups, Planes, Experts, Glu>;
  start_tiles<C, Multiply<C>>(a, stream);
}

template <int Planes, template <typename> typename Multiply>
void pick_tiles(const LinearArgs& a, Stream stream) {
  if (a.order == nullptr) {
    a.glu.outputs > 0 ? pick_tiles<Planes, false, true, Multiply>(a, stream)
                      : pick_tiles<Planes, false, false, Multiply>(a, stream);
  } else {
    a.glu.outputs > 0 ? pick_tiles<Planes, true, true, Multiply>(a, stream)
                      : pick_tiles<Planes, true, false, Multiply>(a, stream);
  }
}

}  // namespace strata::cuda
