// Rows of any type a weight may have, to f32 and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace strata {

// Float and block types.
bool is_weight_type(DType dtype);

// `count` elements of `from` (any alignment, whole blocks) as f32. Error for other types. FP8 comes without block scales.
void row_to_f32(DType type, const std::byte* from, std::int64_t count, float* to);

// The reverse: plain types round to nearest, blocks are fitted (quantize_row). Error for values a block type cannot hold
// (infinities, NaN).
void row_from_f32(DType type, const float* from, std::int64_t count, std::byte* to);

// The type to keep rows of `row_size` in where `wanted` is asked for: itself if they are whole blocks, else the next finer type
// whose blocks are 32, else f16.
DType fitting_type(DType wanted, std::int64_t row_size);

}  // namespace strata
