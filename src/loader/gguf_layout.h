// Tensors between their GGUF and their published form (see gguf_names.h for how these differ).
#pragma once

#include "loader/gguf_names.h"
#include "loader/tensor_source.h"

namespace strata {

// Makes a tensor as it lies in the file the published one, lazily: extents, dtype and convert are set. Error when its shape
// does not fit the layout. Rows move as they are, whatever the type; runs of columns too where they are whole blocks, else
// the tensor is given in a type of smaller blocks that holds the same values (Q4_1, Q5_1, Q8_0; f32 for odd sizes).
void to_published(SourceTensor& tensor, std::string published_name, TensorLayout layout);

// The reverse for one row: `from` (f32, published) as the file has it. `count` elements.
void to_file_row(const TensorLayout& layout, const float* from, float* to, std::int64_t count);

// What both forms have in common: a matrix of rows; a vector is rows of one element.
std::int64_t layout_rows(std::span<const std::int64_t> extents);

}  // namespace strata
