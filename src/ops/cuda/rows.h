// Launches of embed, gather_rows, save_rows and concat: rows moved, with a change of element type where they differ.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

// to[to_rows[i] or i, to_column ...] = from[from_rows[i] or i] * scale. Row numbers are read at index i * step.
struct MoveArgs {
  Rows to, from;
  const int* to_rows = nullptr;
  const int* from_rows = nullptr;
  int step = 1;
  std::int64_t rows = 0, columns = 0, to_column = 0;
  float scale = 1;
  const float* scales = nullptr;  // of f8 weights `from`: [from row / scale_rows, scale_columns], a column per 128; 4-bit: WeightView
  int scale_rows = 1;
  std::int64_t scale_columns = 0;
  bool wide = false;
};
void launch_move(const MoveArgs& args, Stream stream);

}  // namespace strata::cuda
