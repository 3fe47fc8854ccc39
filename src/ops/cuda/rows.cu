// embed, gather_rows, save_rows, concat: one kernel that moves rows.
#include "ops/cuda/device/four_bit.cuh"
#include "ops/cuda/device/map.cuh"
#include "ops/cuda/rows.h"

namespace strata::cuda {
namespace {

struct Move {
  MoveArgs a;
  __device__ void operator()(std::int64_t i, int column, int n) const {
    const std::int64_t from = a.from_rows != nullptr ? a.from_rows[i * a.step] : i;
    const std::int64_t to = a.to_rows != nullptr ? a.to_rows[i * a.step] : i;
    if (from < 0 || to < 0) return;
    Eight x;
    float scale = a.scale;
    if (is_four_bit(a.from.elem)) {
      for (int j = 0; j < 8; ++j) x.v[j] = j < n ? four_bit_weight(a.from, a.scales, from, column + j) : 0.0F;
    } else if (a.scales != nullptr) {
#pragma unroll
      for (int j = 0; j < 8; ++j) x.v[j] = j < n ? load(a.from, from, f8_weight_place(column + j)) : 0.0F;
      scale *= a.scales[from / a.scale_rows * a.scale_columns + column / 128];
    } else {
      x = load8(a.from, from, column, n, a.wide);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) x.v[j] *= scale;
    store8(a.to, to, column + a.to_column, n, a.wide, x);
  }
};

}  // namespace

void launch_move(const MoveArgs& args, Stream stream) { map_rows(stream, args.rows, args.columns, Move{args}); }

}  // namespace strata::cuda
