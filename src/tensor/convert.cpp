#include "tensor/convert.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/quant.h"

namespace strata {
namespace {

template <typename T, typename Convert>
void read_each(const std::byte* from, std::int64_t count, float* to, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    to[i] = convert(value);
  }
}

template <typename Convert>
void write_each(const float* from, std::int64_t count, std::byte* to, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = convert(from[i]);
    std::memcpy(to + static_cast<std::size_t>(i) * sizeof(value), &value, sizeof(value));
  }
}

}  // namespace

bool is_weight_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF64:
    case DType::kF8E4M3: return true;
    default: return is_block_type(dtype);
  }
}

DType fitting_type(DType wanted, std::int64_t row_size) {
  if (row_size % info(wanted).block_elements == 0) return wanted;
  if (row_size % 32 != 0) return DType::kF16;
  switch (wanted) {
    case DType::kQ4_K: return DType::kQ5_0;
    case DType::kQ5_K: return DType::kQ5_1;
    case DType::kQ6_K: return DType::kQ8_0;
    default: return DType::kIQ4_NL;  // Q2_K, Q3_K, IQ4_XS
  }
}

void row_to_f32(DType type, const std::byte* from, std::int64_t count, float* to) {
  switch (type) {
    case DType::kF32: std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float)); return;
    case DType::kBF16: return read_each<BFloat16>(from, count, to, [](BFloat16 x) { return to_float(x); });
    case DType::kF16: return read_each<std::uint16_t>(from, count, to, half_to_float);
    case DType::kF64: return read_each<double>(from, count, to, [](double x) { return static_cast<float>(x); });
    case DType::kF8E4M3: return read_each<std::uint8_t>(from, count, to, f8e4m3_to_float);
    default:
      if (!is_block_type(type)) throw Error("{} is not a type of weights", name(type));
      dequantize_row(type, from, count, to);
  }
}

void row_from_f32(DType type, const float* from, std::int64_t count, std::byte* to) {
  switch (type) {
    case DType::kF32: std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float)); return;
    case DType::kBF16: return write_each(from, count, to, to_bfloat16);
    case DType::kF16: return write_each(from, count, to, float_to_half);
    case DType::kF64: return write_each(from, count, to, [](float x) { return static_cast<double>(x); });
    case DType::kF8E4M3: return write_each(from, count, to, float_to_f8e4m3);
    default:
      if (!is_block_type(type)) throw Error("{} is not a type of weights", name(type));
      for (std::int64_t i = 0; i < count; ++i) {
        if (!std::isfinite(from[i])) throw Error("element {} of a row is {}: {} cannot hold it", i, from[i], name(type));
      }
      quantize_row(type, from, count, to);
  }
}

}  // namespace strata
