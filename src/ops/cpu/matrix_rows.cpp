#include "ops/cpu/matrix_rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "ops/cpu/panel.h"
#include "tensor/quant.h"

namespace strata::cpu {
namespace {

template <typename T, typename Convert>
void widen_each(const std::byte* from, std::int64_t count, float* to, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    to[i] = convert(value);
  }
}

std::int64_t piece_rows(const HostPiece& p) { return p.transposed ? p.data[1] : p.data[0]; }
std::int64_t piece_inputs(const HostPiece& p) { return p.transposed ? p.data[0] : p.data[1]; }

}  // namespace

void widen_row(DType dtype, const std::byte* from, std::int64_t count, float* to) {
  switch (dtype) {
    case DType::kF32: std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float)); return;
    case DType::kBF16: widen_each<BFloat16>(from, count, to, [](BFloat16 x) { return to_float(x); }); return;
    case DType::kF16: widen_each<std::uint16_t>(from, count, to, half_to_float); return;
    case DType::kF64: widen_each<double>(from, count, to, [](double x) { return static_cast<float>(x); }); return;
    case DType::kF8E4M3: widen_each<std::uint8_t>(from, count, to, f8e4m3_to_float); return;
    default: break;
  }
  if (is_block_type(dtype)) return dequantize_row(dtype, from, count, to);
  throw Error("{} is not a float type", name(dtype));
}

MatrixRows::MatrixRows(const HostMatrix& matrix) : matrix_(matrix) {
  STRATA_CHECK(!matrix.pieces.empty(), "a matrix of no pieces");
  dtype_ = matrix.pieces[0].data.dtype();
  inputs_ = piece_inputs(matrix.pieces[0]);
  bool all_blocks = true;
  for (const HostPiece& p : matrix.pieces) {
    STRATA_CHECK(p.data.shape().rank() == 2, "a piece of shape {}", p.data.shape().to_string());
    STRATA_CHECK(piece_inputs(p) == inputs_, "inputs of stacked pieces: {} and {}", inputs_, piece_inputs(p));
    const Shape blocks = is_block_type(p.data.dtype()) ? Shape{1, 1} : Shape{scale_blocks(p.data[0]), scale_blocks(p.data[1])};
    STRATA_CHECK(p.scales.empty() || p.scales.shape() == blocks, "scales {} of a piece {}", p.scales.shape().to_string(),
                 p.data.shape().to_string());
    STRATA_CHECK(!p.transposed || !is_block_type(p.data.dtype()), "a transposed piece of {}", name(p.data.dtype()));
    mixed_ = mixed_ || p.data.dtype() != dtype_;
    all_blocks = all_blocks && is_block_type(p.data.dtype());
    rows_ += piece_rows(p);
    ends_.push_back(rows_);
  }
  if (mixed_) dtype_ = all_blocks && inputs_ % 32 == 0 ? DType::kQ8_0 : DType::kF32;
  STRATA_CHECK(matrix.experts == 0 || rows_ % matrix.experts == 0, "{} rows for {} experts", rows_, matrix.experts);
}

MatrixRows::Place MatrixRows::find(std::int64_t row) const {
  const auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
  return {&matrix_.pieces[i], row - (i == 0 ? 0 : ends_[i - 1])};
}

float MatrixRows::scale(std::int64_t row, std::int64_t k) const {
  const Place at = find(row);
  if (at.piece->scales.empty()) return 1.0F;
  if (is_block_type(at.piece->data.dtype())) return at.piece->scales.data<float>()[0];
  const std::int64_t r = at.row / kScaleBlock, c = k / kScaleBlock;
  return at.piece->transposed ? at.piece->scales.row<float>(c)[r] : at.piece->scales.row<float>(r)[c];
}

void MatrixRows::read_f32(std::int64_t row, float* to) const {
  const Place at = find(row);
  const Tensor& data = at.piece->data;
  if (at.piece->transposed) {
    for (std::int64_t k = 0; k < inputs_; ++k) {
      widen_row(data.dtype(), data.raw() + bytes_of(data.dtype(), k * data.stride() + at.row), 1, to + k);
    }
  } else {
    widen_row(data.dtype(), data.raw() + bytes_of(data.dtype(), at.row * data.stride()), inputs_, to);
  }
  if (at.piece->scales.empty()) return;
  for (std::int64_t k = 0; k < inputs_; ++k) to[k] *= scale(row, k);
}

void MatrixRows::read_raw(std::int64_t row, std::byte* to) const {
  const Place at = find(row);
  const Tensor& data = at.piece->data;
  if (!at.piece->transposed) {
    std::memcpy(to, data.raw() + bytes_of(dtype_, at.row * data.stride()), bytes_of(dtype_, inputs_));
    return;
  }
  const std::size_t size = bytes_of(dtype_, 1);
  for (std::int64_t k = 0; k < inputs_; ++k) {
    std::memcpy(to + static_cast<std::size_t>(k) * size, data.raw() + bytes_of(dtype_, k * data.stride() + at.row), size);
  }
}

}  // namespace strata::cpu
