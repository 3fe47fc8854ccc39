#include "ops/arena.h"

#include <algorithm>

namespace strata {

Tensor Arena::make(const Shape& shape, DType dtype) {
  constexpr std::size_t kAlign = 256;  // a GPU's widest access, and four cache lines
  const std::size_t bytes = (bytes_of(dtype, shape.elements()) + kAlign - 1) / kAlign * kAlign;
  while (true) {
    if (at_.block == blocks_.size()) blocks_.push_back(allocate_(std::max(bytes, block_bytes_)));
    const Buffer& block = blocks_[at_.block];
    if (at_.used + bytes <= block.bytes()) {
      const Tensor t = block.view(dtype, shape, at_.used);
      at_.used += bytes;
      return t;
    }
    at_ = {at_.block + 1, 0};
  }
}

std::size_t Arena::bytes() const {
  std::size_t n = 0;
  for (const Buffer& b : blocks_) n += b.bytes();
  return n;
}

}  // namespace strata
