// Descriptions of matrices in device memory for the bulk tensor copy engine (TMA).
#pragma once

#include <cstdint>

#include "ops/cuda/views.h"

namespace strata::cuda {

// The bytes of a CUtensorMap; passed to kernels by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};

// Boxes of box_rows x 128 bytes of a matrix of rows x columns bf16 or f8 elements; each box lands in shared memory with
// rows of 128 bytes whose 16-byte pieces are swizzled (piece p of row r at p ^ (r % 8)); outside the matrix reads zeros.
// The matrix must be aligned to 16 bytes, its stride a multiple of 16 bytes.
TensorMap make_tensor_map(const Rows& matrix, std::int64_t rows, std::int64_t columns, int box_rows);

// The same for bf16 pages of `tokens` rows of `columns` elements; a box is 64 columns of a whole page. Page numbers outside
// [0, pages) read zeros.
TensorMap make_page_map(const Rows& pool, std::int64_t pages, int tokens, std::int64_t columns);

}  // namespace strata::cuda
