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

// Fills the TileInfo of tiles, step by step: the loads of a step are waited for in the next, which comes after
// another stage's copies.
template <typename C>
struct Planner {
  static constexpr int kSteps = 4, kEach = (C::kRows + C::kProducers - 1) / C::kProducers;  // rows of a thread
  const LinearArgs& a;
  const Schedule<C>& schedule;
  TileShared<C>& s;
  const int thread;
  Ring<kInfos> slot;
  int expert = 0, start = 0, rows = 0;
  int row[kEach];
  float scale[kEach];
  TilePlace place;

  __device__ __forceinline__ Planner(const LinearArgs& args, const Schedule<C>& of, TileShared<C>& shared, int of_block)
      : a(args), schedule(of), s(shared), thread(of_block) {}

  __device__ __forceinline__ void step(int tile, int number) {
    TileInfo<C>& info = s.info[slot.stage];
    if (number == 0) {
      if constexpr (C::kExperts) {
        expert = schedule.expert_of(tile);
        start = a.first[expert];
        rows = a.first[expert + 1];
      }
    } else if (number == 1) {
      place = schedule.place(tile, expert, start, rows - start);
      const int count = static_cast<int>(place.end - place.row);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int r = thread + i * C::kProducers;
        row[i] = r >= count ? -1 : C::kExperts ? a.order[place.row + r] : static_cast<int>(place.row) + r;
      }
    } else if (number == 2) {
      barrier_wait(s.info_empty + slot.stage, slot.parity ^ 1);
      if (thread == 0) {
        const int count = static_cast<int>(place.end - place.row), width_step = C::width_step(count);
        info.expert = place.expert, info.output = place.output, info.same = place.same;
        info.start = static_cast<int>(place.row), info.count = count;
        info.width = (count + width_step - 1) / width_step * width_step;
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int r = thread + i * C::kProducers;
        if (r < C::kRows) info.row[r] = row[i];
        if constexpr (C::kF8)
          scale[i] = row[i] >= 0 ? a.x_scales[C::kExperts ? row[i] / a.divisor : row[i]] : 0.0F;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int r = thread + i * C::kProducers;
        if constexpr (C::kF8) {
          if (r < C::kRows) info.scale[r] = scale[i];
        }
      }
      barrier_arrive(s.info_full + slot.stage);
      slot.next();
    }
  }
};

template <typename C>
__device__ __forceinline__ void produce(const LinearArgs& a, const TensorMap* weights, const TensorMap* rows,
                                        const Schedule<C>& schedule, std::uint8_t* ring_bytes,
                                        TileShared<C>& s) {
  const int thread = threadIdx.x % 128;
  if (thread >= C::kProducers) return;
  const bool copies = thread < (C::kFour ? 32 : 1);  // weights
  const auto copy_weights = [&](int expert, int output, bool same, int block, int stage) {
    std::uint8_t* to = ring_bytes + stage * C::kStageBytes;
    const auto row_of = [&](int part) {
      return expert * a.w.outputs + weight_row<C>(a, part / C::kGroups, part % C::kGroups) + output;
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
      for (int part = 0; part < C::kRowsOfW / 64; ++part) {
        const int row = static_cast<int>(row_of(part));
        if (!same) {
          copy_box(to + part * 64 * 128, weights, block * C::kInputs, row, s.full + stage);
        } else if (part % 2 == schedule.rank) {
          copy_box_to_both(to + part * 64 * 128, weights, block * C::kInputs, row, s.full + stage);
        }
      }
    }
  };
  Planner<C> planner(a, schedule, s, thread);
  const bool any = schedule.first < schedule.total;
  if (any) planner.step(schedule.first, 0), planner.step(schedule.first, 1);
  int early = 0;  // stages whose weights are under way
  if constexpr (C::kEarly) {
    if (copies && any) {
      const TilePlace& p = planner.place;
      for (; early < min(C::kStages, schedule.end - schedule.begin); ++early)
        copy_weights(p.expert, p.output, p.same, schedule.begin + early, early);
    }
    begin_kernel();
  }
  if (any) planner.step(schedule.first, 2), planner.step(schedule.first, 3);
  Ring<C::kStages> ring;
  Ring<kInfos> slot;
  for (int tile = schedule.first; tile < schedule.total; tile += schedule.step, slot.next()) {
    const bool more = tile + schedule.step < schedule.total;
    barrier_wait(s.info_full + slot.stage, slot.parity);
    const TileInfo<C>& info = s.info[slot.stage];
    const int expert = info.expert, output = info.output, width = info.width;
    const bool same = info.same;
    // Gathered rows: thread i copies piece i % 8 of rows i / 8, i / 8 + 16, ..
    constexpr int kEach = C::kRows / 16, kBytes = C::kF8 ? 1 : 2;
    unsigned from[kEach];  // in units of 16 bytes
    if constexpr (C::kExperts) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int row = info.row[min(thread / 8 + 16 * j, info.count - 1)] / a.divisor;
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
          copy_weights(expert, output, same, block, ring.stage);
        }
      }
      if (thread == 0) {
        if constexpr (!C::kExperts) {
#pragma unroll
          for (int box = 0; box < C::kBoxes; ++box)
            copy_box(boxes + box * C::kBox, rows, (block * C::kBoxes + box) * (128 / kBytes), info.start,
                     s.full + ring.stage);
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
      if (more && block - schedule.begin < planner.kSteps)
        planner.step(tile + schedule.step, block - schedule.begin);
    }
    for (int i = schedule.end - schedule.begin; more && i < planner.kSteps; ++i)
      planner.step(tile + schedule.step, i);
  }
}

// f with the width as a constant.
template <typename C, int N = C::kRows, typename F>
__device__ __forceinline__ void with_width(int width, F&& f) {
  constexpr int kLess = N - C::width_step(N);
  if constexpr (kLess > 0) {
    if (width <= kLess) return with_width<C, kLess>(width, f);
  }
  f(std::integral_constant<int, N>{});
}

// Multiply::run<N>(consumer, info, begin, end, sum): the sums over stages [begin, end) of a tile of N rows,
// each taken and released.
template <typename C, typename Multiply>
__global__ void __launch_bounds__(128 * (kConsumers + 1), C::kBlocks)
    tiles_kernel(LinearArgs a, const __grid_constant__ TensorMap weights,
                 const __grid_constant__ TensorMap rows) {
  extern __shared__ std::uint8_t shared[];
  __shared__ TileShared<C> s;
  static_assert(C::kShared + sizeof(s) + 128 <= 227 * 1024 / C::kBlocks);
  std::uint8_t* ring_bytes = shared + (1024 - shared_address(shared) % 1024) % 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      barrier_init(s.full + i, C::kExperts ? 129 : 1);
      barrier_init(s.empty + i, kConsumers * 4 * (C::kPair ? 2 : 1));
    }
    for (int i = 0; i < kInfos; ++i) {
      barrier_init(s.info_full + i, C::kProducers);
      barrier_init(s.info_empty + i, kConsumers * 4);
    }
    barrier_init_done();
    if constexpr (!C::kFour) prefetch_map(&weights);
    if constexpr (!C::kExperts) prefetch_map(&rows);
  }
  if constexpr (!C::kEarly) begin_kernel();
  if (C::kExperts && a.x_planes.data != nullptr) wait_for_previous();  // the entries may be the kernel before's
  const auto meet = [] {
    if constexpr (C::kPair) {
      cooperative_groups::this_cluster().sync();
    } else {
      __syncthreads();
    }
  };
  meet();
  const Schedule<C> schedule(a, s);
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    produce<C>(a, &weights, &rows, schedule, ring_bytes, s);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(C::kRegisters));
    if constexpr (C::kEarly) begin_kernel();
    Consumer<C> c(a, s, ring_bytes, ring_bytes + C::kStages * C::kStageBytes);
    if (C::kInTurns && c.group == 1) c.give_turn();
    Ring<kInfos> slot;
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
  if constexpr (C::kPair) meet();  // nobody leaves while the other copies to it or arrives there
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
  if constexpr (C::kPair) {
    return launch_clusters(kernel, static_cast<unsigned>(2 * std::min<std::int64_t>(most, a.processors / 2)), 2,
                           128 * (kConsumers + 1), C::kShared, stream, a, weights, rows);
  }
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
    // An expert's rows differ from the average: the most that registers and shared memory hold (a block's sums).
    using C = TileConfig<Experts && Planes == 0 ? 144 : 128, 2, Planes, Experts, Glu>;
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
