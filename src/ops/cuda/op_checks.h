// Checks that ops share, and the plain views kernels take; a mismatch names the op, the tensor and both numbers.
#pragma once

#include <string_view>

#include "ops/batch.h"
#include "ops/cuda/views.h"
#include "tensor/tensor.h"

namespace strata::cuda {

int elem_of(DType dtype);  // f32, bf16, f16, f8_e4m3; q4_0, q4_1, mxfp4, nvfp4 of weights; else a broken invariant

// f32 or bf16 device rows x columns, whatever the rank of a row.
Rows rows_of(std::string_view op, std::string_view what, const Tensor& t, std::int64_t rows, std::int64_t columns);
// The same with rows of no fixed number: pools of slots, pages or tapes. Any float type.
Rows pool_of(std::string_view op, std::string_view what, const Tensor& t, std::int64_t columns);
// A contiguous f32 device vector; null when empty and `optional`.
const float* vector_of(std::string_view op, std::string_view what, const Tensor& t, std::int64_t elements, bool optional = false);
// A device tensor of i32, contiguous; null when empty.
const int* ints_of(std::string_view op, std::string_view what, const Tensor& t);
BatchView view_of(std::string_view op, const Batch& batch);

// Whether 16-byte accesses to groups of eight columns of each row are aligned.
bool wide(const Rows& r, std::int64_t columns);

inline void check_extent(std::string_view op, std::string_view what, std::int64_t got, std::int64_t expected) {
  STRATA_CHECK(got == expected, "{}: {} {}, expected {}", op, what, got, expected);
}

}  // namespace strata::cuda
