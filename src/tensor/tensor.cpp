#include "tensor/tensor.h"

#include <cstdlib>
#include <cstring>

#include <utility>

#include "tensor/huge_pages.h"
#include "tensor/out_of_memory.h"

namespace strata {

Tensor Tensor::rows_from(std::int64_t begin, std::int64_t count) const {
  STRATA_CHECK(begin >= 0 && count >= 0 && begin + count <= rows(), "rows [{}, {}) of {}", begin, begin + count, rows());
  Tensor t = *this;
  Shape shape{count};
  for (int i = 1; i < shape_.rank(); ++i) shape.append(shape_[i]);
  t.shape_ = shape;
  t.data_ = data_ + bytes_of(dtype_, begin * stride_);
  return t;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  STRATA_CHECK(shape_.rank() == 2 && begin >= 0 && begin + count <= shape_[1], "columns [{}, {}) of {}", begin,
               begin + count, shape_.to_string());
  Tensor t = *this;
  t.shape_ = Shape{shape_[0], count};
  t.data_ = data_ + bytes_of(dtype_, begin);
  return t;
}

Tensor Tensor::reshape(const Shape& shape) const {
  STRATA_CHECK(shape.elements() == elements(), "reshape {} to {}", shape_.to_string(), shape.to_string());
  Tensor t = *this;
  t.shape_ = shape;
  if (contiguous()) {
    t.stride_ = row_elements(shape);
  } else {
    STRATA_CHECK(shape[0] == shape_[0], "a strided view keeps its rows: {} to {}", shape_.to_string(), shape.to_string());
  }
  return t;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(release_, other.release_);
  return *this;
}

Buffer::~Buffer() {
  if (release_ != nullptr && data_ != nullptr) release_(data_, bytes_);
}

Buffer Buffer::host(std::size_t bytes) {
  const std::size_t size = bytes == 0 ? 64 : bytes;
  if (size < kHugeFrom) {
    void* p = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (p == nullptr) throw OutOfMemory("out of memory: {} bytes", size);
    std::memset(p, 0, size);
    return {p, bytes, Device::kCpu, [](void* data, std::size_t) { std::free(data); }};
  }
  return {map_huge_pages(size), bytes, Device::kCpu, unmap_huge_pages};
}

Tensor Buffer::view(DType dtype, const Shape& shape, std::size_t byte_offset) const {
  STRATA_CHECK(byte_offset + bytes_of(dtype, shape.elements()) <= bytes_, "view {} {} at {} of {} bytes", name(dtype),
               shape.to_string(), byte_offset, bytes_);
  return {data() + byte_offset, dtype, shape, device_};
}

}  // namespace strata
