// MatrixRows: the rows of a HostMatrix by number, whatever pieces they lie in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/weight.h"

namespace strata::cpu {

// `count` elements of a float or block type as f32. Error for other types.
void widen_row(DType dtype, const std::byte* from, std::int64_t count, float* to);

// Looks at a matrix that must outlive it; any number of threads.
class MatrixRows {
 public:
  explicit MatrixRows(const HostMatrix& matrix);  // stops on pieces that do not fit together

  std::int64_t rows() const { return rows_; }      // of all experts together
  std::int64_t inputs() const { return inputs_; }  // K
  DType dtype() const { return dtype_; }           // what all pieces are; when they differ q8_0 for blocks, else f32
  bool stored_as(DType dtype) const { return !mixed_ && dtype_ == dtype; }

  void read_f32(std::int64_t row, float* to) const;      // widened, and scaled if the piece is
  void read_raw(std::int64_t row, std::byte* to) const;  // as stored; stored_as(dtype()) only
  float scale(std::int64_t row, std::int64_t k) const;   // of an f8 or nvfp4 piece; 1 without scales

 private:
  struct Place {
    const HostPiece* piece;
    std::int64_t row;
  };
  Place find(std::int64_t row) const;

  const HostMatrix& matrix_;
  std::vector<std::int64_t> ends_;  // rows up to and with each piece
  std::int64_t rows_ = 0, inputs_ = 0;
  DType dtype_ = DType::kF32;
  bool mixed_ = false;
};

}  // namespace strata::cpu
