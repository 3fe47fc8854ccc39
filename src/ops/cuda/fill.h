// Fills device memory with random numbers: dummy weights.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

struct FillArgs {
  Rows to;                             // f32, bf16 or f8
  std::int64_t rows = 0, columns = 0;  // beyond `columns` of a row: zeros up to its stride
  float mean = 0, deviation = 0;
  unsigned seed = 0;
};
void launch_fill(const FillArgs& args, Stream stream);

// A matrix of 4-bit codes (four_bit.h): random codes, all scales the same.
struct FillFourBitArgs {
  Rows to;
  std::int64_t groups = 0;   // of 16 rows
  float* factors = nullptr;  // kElemFp4: of each row
  float deviation = 0;       // of the weights
  unsigned seed = 0;
};
void launch_fill_four_bit(const FillFourBitArgs& args, Stream stream);

}  // namespace strata::cuda
