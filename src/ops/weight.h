// Weights: as a checkpoint gives them (HostMatrix) and as a backend keeps them (Weight).
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace strata {

// Some rows of a matrix in host memory. FP8 checkpoints carry one f32 scale per 128 x 128 block, NVFP4 ones a factor.
struct HostPiece {
  Tensor data;              // [n, K], or [K, n] when transposed
  Tensor scales;            // f32: [ceil(n / 128), ceil(K / 128)] for kF8E4M3, [1, 1] for kNVFP4; or empty (1)
  bool transposed = false;
};

// A matrix [N, K], or `experts` of them, given as pieces stacked by rows, expert by expert. Fusing, splitting and
// permuting rows is listing the pieces in another order: nothing is copied before the backend packs it.
struct HostMatrix {
  std::vector<HostPiece> pieces;
  int experts = 0;          // 0 = a plain matrix; E: the pieces are E equal groups
  HostMatrix() = default;
  explicit HostMatrix(const Tensor& whole) : pieces{{whole, {}, false}} {}
};

// A matrix [N, K] or [E, N, K] in a backend's own layout. Made by Ops::load; only that backend reads `data`.
struct Weight {
  DType dtype = DType::kF32;
  Shape shape;              // [N, K] or [E, N, K]
  Buffer storage;
  Tensor data;              // layout private to the backend
  Tensor scales;            // for kF8E4M3
  std::vector<Weight> parts;  // a plain matrix stacked of several types, where the backend keeps each in its own: by rows

  bool empty() const { return data.empty() && parts.empty(); }
  std::int64_t outputs() const { return shape[-2]; }  // N
  std::int64_t inputs() const { return shape[-1]; }   // K
  std::int64_t experts() const { return shape.rank() == 3 ? shape[0] : 0; }
};

}  // namespace strata
