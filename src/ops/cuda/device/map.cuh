// map_rows: an elementwise kernel from a functor that handles eight neighbours of a row.
#pragma once

#include <algorithm>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/rows.cuh"

namespace strata::cuda {

// f(row, column, n): n columns from `column` (n < 8 only at the end of a row).
template <typename F>
__global__ void __launch_bounds__(256) map_rows_kernel(F f, std::int64_t rows, int columns) {
  begin_kernel();
  const int groups = (columns + 7) / 8;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * groups; i += step) {
    const std::int64_t row = i / groups;
    const int column = static_cast<int>(i - row * groups) * 8;
    f(row, column, min(8, columns - column));
  }
}

template <typename F>
void map_rows(Stream stream, std::int64_t rows, std::int64_t columns, const F& f) {
  const std::int64_t blocks = ceil_div(rows * ceil_div(columns, std::int64_t{8}), std::int64_t{256});
  constexpr std::int64_t kMostBlocks = 132 * 8 * 4;  // processors x blocks of 256 on each x a few waves
  launch(map_rows_kernel<F>, static_cast<unsigned>(std::min(blocks, kMostBlocks)), 256, 0, stream, f, rows,
         static_cast<int>(columns));
}

}  // namespace strata::cuda
