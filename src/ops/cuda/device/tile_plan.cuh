// What a tile of a product of many rows is (tiles.cuh), where each lies, and what the warps of a block share.
#pragma once

#include <algorithm>

#include "ops/cuda/device/expert_tiles.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/four_bit.h"
#include "ops/cuda/linear.h"

namespace strata::cuda {

constexpr int kConsumers = 2;  // warpgroups

// Planes: 0 = bf16 weights and x; above, f8 weights and so many f8 planes of x (quantise_rows.cu); below,
// weights of 4 bits, of the Elem -Planes, and x in the order of reorder_rows.cu.
template <int RowsT, int GroupsT, int PlanesT, bool ExpertsT, bool GluT>
struct TileConfig {
  static_assert(!GluT || GroupsT == 2);
  static constexpr int kRows = RowsT;      // most rows of x a tile
  static constexpr int kGroups = GroupsT;  // groups of 64 outputs a consumer
  static constexpr int kPlanes = PlanesT;
  static constexpr bool kF8 = PlanesT > 0, kFour = PlanesT < 0, kExperts = ExpertsT;
  static constexpr int kElem = kFour ? -PlanesT : kF8 ? kElemF8 : kElemBF16;
  // The widest tiles of experts: two blocks, a cluster, take neighbouring rows of the same outputs, and each copies
  // half of the weights into the shared memory of both.
  static constexpr bool kPair = kExperts && kRows > 64 && !kFour;
  // f8, one group of outputs at a time: consumers multiply in turns, so that one's products run while the other adds.
  static constexpr bool kInTurns = kF8 && kGroups * kRows > 128;
  static constexpr bool kGlu =
      GluT;  // a consumer's first group are gate rows, its second the up rows of the same outputs
  static constexpr int kRowsOfW = kConsumers * kGroups * 64, kOutputs = kGlu ? kRowsOfW / 2 : kRowsOfW;
  // A stage: 128 bytes of each row of w, or blocks of 16 rows (four_bit.h), and kBoxes times 128 bytes of
  // each row of x.
  static constexpr int kInputs = kF8 || kFour ? 128 : 64, kBoxes = kF8 ? kPlanes : kFour ? 2 : 1;
  static constexpr int kWeightBytes = kFour ? kRowsOfW / kFourRows * four_block_bytes(kElem) : kRowsOfW * 128,
                       kBox = kRows * 128, kStageBytes = kWeightBytes + kBox * kBoxes;
  // Staging of a consumer as it writes 64 outputs of up to 64 rows: rows of 128 bytes, and 16 so that columns
  // of pieces lie in different banks.
  static constexpr int kStagingRow = 144,
                       kStagingEach = std::max(std::min(kRows, 64) * kStagingRow, 4 * 2048),
                       kStaging = kConsumers * kStagingEach;
  // Blocks of a processor: two where they fit and widening needs more warps than one has.
  static constexpr int kBlocks = kFour && kRows == 32 ? 2 : 1;
  static constexpr int kStages =
      std::min(10, ((kPair ? 218 : 216) * 1024 / kBlocks - kStaging) / kStageBytes);
  static constexpr int kShared = 1024 + kStages * kStageBytes + kStaging;
  // Registers of a consumer's threads; with a producer's 40 as many as a block has.
  static constexpr int kRegisters = kBlocks == 2 ? 96 : 232;
  static constexpr int kProducers = kExperts ? 128 : 32;  // threads
  // Whether weights may be copied before the kernel before has ended: what says which ones is older than
  // that. f8 and 4 bits: the kernel before has made the planes, or the order (experts whose planes were there
  // already wait all the same).
  static constexpr bool kEarly = kF8 || kFour || !kExperts;
  // Rows are multiplied by so many: an expert's of a pair, of any number, in finer steps where they are many.
  static constexpr int kWidthStep = kRows == 32 ? 16 : 32;
  static constexpr int width_step(int rows) { return kPair && rows > 64 ? 16 : kWidthStep; }
  // Blocks of a cluster that may share the inputs of a tile, where tiles are few; each writes 16 of its rows.
  static constexpr int kSplit = kExperts || kRows > 64 ? 1 : kRows / 16;
};

// Where a tile lies: rows [row, end) of x; experts: entries of the order.
struct TilePlace {
  int expert, output;  // first output
  std::int64_t row, end;
  bool same;  // a pair's: both blocks have the same outputs
};

// The same for those who work on it.
template <typename C>
struct TileInfo {
  int expert, output, start;         // first row of x, or entry
  int count, width;                  // rows, and rows multiplied
  bool same;                         // as in TilePlace
  int row[C::kRows];                 // of out, -1 beyond the end
  alignas(8) float scale[C::kRows];  // f8: of the row of x
};

// What the producer works on, the tile before (the consumers'), and the next.
constexpr int kInfos = 3;

template <typename C>
struct TileShared {
  std::uint64_t full[C::kStages], empty[C::kStages], info_full[kInfos], info_empty[kInfos];
  TileInfo<C> info[kInfos];
  // [experts + 1] tiles of the experts before: those of kRows entries (of a pair: all), those of what is left
  int whole_before[C::kExperts ? kMostExperts + 1 : 1],
      rest_before[C::kExperts && !C::kPair ? kMostExperts + 1 : 1];
};

// Outputs of the product.
template <typename C>
__device__ __host__ __forceinline__ std::int64_t outputs_of(const LinearArgs& a) {
  return C::kGlu ? a.glu.outputs : a.w.outputs;
}
// First of the 64 rows of w, counted from those of the tile, that group `i` of a consumer multiplies.
template <typename C>
__device__ __forceinline__ std::int64_t weight_row(const LinearArgs& a, int consumer, int i) {
  return C::kGlu ? consumer * 64 + i * a.glu.outputs : (consumer * C::kGroups + i) * 64;
}

// Tiles of a cluster of two: two blocks of rows and a tile of outputs, or the odd block of rows that is left and two
// tiles of outputs.
template <typename C>
__device__ __forceinline__ int pair_tiles(int rows, int output_tiles) {
  const int blocks = ceil_div(rows, C::kRows);
  return blocks / 2 * output_tiles + blocks % 2 * ((output_tiles + 1) / 2);
}

// Tiles in the order in which blocks take them, and the stages [begin, end) of each that are this block's.
// Experts: whole tiles first, so that the cheap ones fill the end; in pairs all of one, so that its weights are
// still in the cache.
template <typename C>
struct Schedule {
  const LinearArgs& a;
  const int *whole_before, *rest_before;
  int output_tiles, whole, total;
  int first, step, rank, begin, end;

  __device__ Schedule(const LinearArgs& args, TileShared<C>& s)
      : a(args),
        whole_before(s.whole_before),
        rest_before(s.rest_before),
        output_tiles(static_cast<int>(ceil_div(outputs_of<C>(args), std::int64_t{C::kOutputs}))) {
    const int cluster = C::kPair ? 2 : C::kSplit > 1 ? a.split : 1, split = C::kPair ? 1 : cluster,
              stages = static_cast<int>(ceil_div(a.w.inputs, std::int64_t{C::kInputs}));
    first = static_cast<int>(blockIdx.x) / cluster;
    step = static_cast<int>(gridDim.x) / cluster;
    rank = static_cast<int>(blockIdx.x) % cluster;
    const int part = C::kPair ? 0 : rank;
    begin = stages * part / split;
    end = stages * (part + 1) / split;
    if constexpr (C::kPair) {
      count_tiles(a.first, a.w.experts, s.whole_before,
                  [&](int entries) { return pair_tiles<C>(entries, output_tiles); });
      whole = total = s.whole_before[a.w.experts];
    } else if constexpr (C::kExperts) {
      count_tiles(a.first, a.w.experts, s.whole_before, [](int entries) { return entries / C::kRows; });
      count_tiles(a.first, a.w.experts, s.rest_before,
                  [](int entries) { return entries % C::kRows > 0 ? 1 : 0; });
      whole = s.whole_before[a.w.experts] * output_tiles;
      total = whole + s.rest_before[a.w.experts] * output_tiles;
    } else {
      whole = total = static_cast<int>(ceil_div(a.rows, std::int64_t{C::kRows})) * output_tiles;
    }
  }

  // The expert of a tile.
  __device__ int expert_of(int tile) const {
    if constexpr (C::kPair) return expert_of_tile(whole_before, a.w.experts, tile, 1);
    if constexpr (!C::kExperts) return 0;
    return tile < whole ? expert_of_tile(whole_before, a.w.experts, tile, output_tiles)
                        : expert_of_tile(rest_before, a.w.experts, tile - whole, output_tiles);
  }

  // start, rows: entries of that expert.
  __device__ TilePlace place(int tile, int expert, int start, int rows) const {
    TilePlace p{};
    p.expert = expert;
    if constexpr (C::kPair) {
      const int inside = tile - whole_before[expert], blocks = ceil_div(rows, C::kRows), pairs = blocks / 2;
      p.same = inside < pairs * output_tiles;
      // Pairs side by side; then the odd block.
      const int block = p.same ? inside % pairs * 2 + rank : blocks - 1,
                output = p.same ? inside / pairs : 2 * (inside - pairs * output_tiles) + rank;
      p.output = output * C::kOutputs;
      p.row = start + std::int64_t{rows} * block / blocks;  // as equal as can be
      p.end = start + std::int64_t{rows} * (block + 1) / blocks;
    } else if constexpr (C::kExperts) {
      const bool is_whole = tile < whole;
      const int* before = is_whole ? whole_before : rest_before;
      if (!is_whole) tile -= whole;
      const int own = rows / C::kRows, inside = tile - before[expert] * output_tiles;
      p.output = (is_whole ? inside / own : inside) * C::kOutputs;
      p.row = start + std::int64_t{is_whole ? inside % own : own} * C::kRows;
      p.end = is_whole ? p.row + C::kRows : start + rows;
    } else {
      // Bands of row tiles: what blocks work on at a time is a few rows and a few outputs, both still in the
      // cache.
      constexpr int kBand = 16;
      const int row_tiles = total / output_tiles, band = tile / (kBand * output_tiles),
                own = min(kBand, row_tiles - band * kBand), inside = tile - band * kBand * output_tiles;
      p.output = inside / own * C::kOutputs;
      p.row = std::int64_t{band * kBand + inside % own} * C::kRows;
      p.end = min(a.rows, p.row + C::kRows);
    }
    return p;
  }
};

}  // namespace strata::cuda
