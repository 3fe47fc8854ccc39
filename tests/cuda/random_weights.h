// Random matrices of one type or of stacked pieces.
#pragma once

#include "cuda/parity.h"
#include "ops/test_matrix.h"

namespace strata::testing {

// Pieces of bf16, or of f8 with a scale for every 128 x 128 block.
struct Matrix {
  std::deque<test::Owned> owned;
  HostMatrix matrix;
};

inline Matrix random_weights(DType dtype, const std::vector<int>& piece_rows, std::int64_t inputs, unsigned seed, int experts = 0) {
  Matrix m;
  m.matrix.experts = experts;
  for (const int rows : piece_rows) {
    m.owned.push_back(test::random_matrix(dtype, rows, inputs, seed++));
    HostPiece piece{m.owned.back().tensor, {}, false};
    if (dtype == DType::kF8E4M3) {
      m.owned.push_back(test::random_matrix(DType::kF32, (rows + 127) / 128, (inputs + 127) / 128, seed++));
      piece.scales = m.owned.back().tensor;
    }
    m.matrix.pieces.push_back(piece);
  }
  return m;
}

}  // namespace strata::testing
