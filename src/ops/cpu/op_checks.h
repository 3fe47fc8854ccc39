// Checks that ops share: f32 host tensors of given extents; a mismatch names the op, the tensor and both
// numbers.
#pragma once

#include <string_view>

#include "tensor/tensor.h"

namespace strata {

inline void check_f32(std::string_view op, std::string_view what, const Tensor& t) {
  STRATA_CHECK(t.dtype() == DType::kF32 && t.device() == Device::kCpu && !t.empty(),
               "{}: {} must be f32 on the CPU, is {}{}", op, what, t.empty() ? "empty, " : "",
               name(t.dtype()));
}

// rows x columns elements, whatever the rank of a row.
inline void check_matrix(std::string_view op, std::string_view what, const Tensor& t, std::int64_t rows,
                         std::int64_t columns) {
  if (rows == 0 && t.shape().rank() > 0 && t.rows() == 0) return;
  check_f32(op, what, t);
  STRATA_CHECK(t.rows() == rows, "{}: rows of {} {}, expected {}", op, what, t.rows(), rows);
  STRATA_CHECK(t.row_size() == columns, "{}: row of {} {}, expected {}", op, what, t.row_size(), columns);
}

inline void check_vector(std::string_view op, std::string_view what, const Tensor& t, std::int64_t elements) {
  check_f32(op, what, t);
  STRATA_CHECK(t.elements() == elements, "{}: {} has {} elements, expected {}", op, what, t.elements(),
               elements);
  STRATA_CHECK(t.contiguous(), "{}: {} must be contiguous: stride {}, row {}", op, what, t.stride(),
               t.row_size());
}

// Extent of one tensor against that of another.
inline void check_extent(std::string_view op, std::string_view what, std::int64_t got,
                         std::int64_t expected) {
  STRATA_CHECK(got == expected, "{}: {} {}, expected {}", op, what, got, expected);
}

inline const float* vector_or_null(const Tensor& t) { return t.empty() ? nullptr : t.data<float>(); }

}  // namespace strata
