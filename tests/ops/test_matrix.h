// Random activations and matrices for the tests of products, with their values as doubles.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/weight.h"
#include "tensor/tensor.h"

namespace strata::test {

// A host tensor that owns its memory.
struct Owned {
  Buffer buffer;
  Tensor tensor;

  Owned() = default;
  Owned(DType dtype, const Shape& shape)
      : buffer(Buffer::host(bytes_of(dtype, shape.elements()))), tensor(buffer.view(dtype, shape)) {}
  float* row(std::int64_t r) const { return tensor.row<float>(r); }
};

inline void put(const Tensor& t, std::int64_t row, std::int64_t column, float value) {
  switch (t.dtype()) {
    case DType::kF32: t.row<float>(row)[column] = value; return;
    case DType::kBF16: t.row<BFloat16>(row)[column] = to_bfloat16(value); return;
    case DType::kF16: t.row<std::uint16_t>(row)[column] = float_to_half(value); return;
    case DType::kF8E4M3: t.row<std::uint8_t>(row)[column] = float_to_f8e4m3(value); return;
    default: STRATA_CHECK(false, "put {}", name(t.dtype()));
  }
}

inline double get(const Tensor& t, std::int64_t row, std::int64_t column) {
  switch (t.dtype()) {
    case DType::kF32: return t.row<float>(row)[column];
    case DType::kBF16: return to_float(t.row<BFloat16>(row)[column]);
    case DType::kF16: return half_to_float(t.row<std::uint16_t>(row)[column]);
    case DType::kF8E4M3: return f8e4m3_to_float(t.row<std::uint8_t>(row)[column]);
    default: STRATA_CHECK(false, "get {}", name(t.dtype()));
  }
  return 0;
}

// [rows, columns] of normal values; a stride wider than `columns` when `gap` is given (the gap is NaN).
inline Owned random_matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::uint32_t seed, int gap = 0) {
  Owned m(dtype, {rows, columns + gap});
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns + gap; ++c) put(m.tensor, r, c, c < columns ? normal(random) : NAN);
  }
  if (gap > 0) m.tensor = m.tensor.columns(0, columns);
  return m;
}

inline Owned random_vector(std::int64_t n, std::uint32_t seed) {
  Owned v = random_matrix(DType::kF32, 1, n, seed);
  v.tensor = v.tensor.reshape({n});
  return v;
}

// Rows [r, r + count) of a and b have the same bits.
inline bool same_bits(const Tensor& a, std::int64_t ra, const Tensor& b, std::int64_t rb, std::int64_t count = 1) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::memcmp(a.row<float>(ra + i), b.row<float>(rb + i), static_cast<std::size_t>(a.row_size()) * 4) != 0) return false;
  }
  return true;
}

}  // namespace strata::test
