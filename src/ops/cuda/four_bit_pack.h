// Packing of rows of block types into the device's blocks of 4-bit codes (four_bit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cpu/matrix_rows.h"
#include "ops/cuda/four_bit.h"

namespace strata::cuda {

// Q4_0, Q4_1, MXFP4 or NVFP4.
bool is_four_bit_type(DType type);

// Whether a matrix can lie in four-bit blocks as `type`: whole rows of blocks for each expert, exponents of a row of MXFP4 not
// more than 31 apart, scales that are numbers. `values` = false: the numbers themselves are not looked at.
bool fits_four_bit(const cpu::MatrixRows& rows, DType type, std::int64_t experts, bool values);

// Rows [begin, begin + 16) of a matrix that fits, stored in `type` or quantised to it, as the blocks of these rows, all of them
// (zeros beyond the last row), and for kElemFp4 their 16 factors. Error for numbers that cannot be quantised.
void pack_four_bit(const cpu::MatrixRows& rows, DType type, std::int64_t begin, std::byte* blocks, float* factors);

}  // namespace strata::cuda
