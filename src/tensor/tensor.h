// Tensor, a view of memory that something else owns, and Buffer, the owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata {

enum class Device : std::uint8_t { kCpu, kCuda };

// A view: cheap to copy, owns nothing. Row-major; rows (the first extent) may lie further apart than their length, so
// that a column range of a matrix is a view too; everything within a row is contiguous.
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, const Shape& shape, Device device = Device::kCpu)
      : data_(static_cast<std::byte*>(data)), shape_(shape), stride_(shape.rank() > 0 ? row_elements(shape) : 0),
        dtype_(dtype), device_(device) {}

  bool empty() const { return data_ == nullptr; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  std::int64_t operator[](int i) const { return shape_[i]; }          // extent i; negative counts from the back
  std::int64_t rows() const { return shape_[0]; }
  std::int64_t row_size() const { return row_elements(shape_); }      // elements in a row
  std::int64_t stride() const { return stride_; }                     // elements from one row to the next
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return bytes_of(dtype_, elements()); }
  bool contiguous() const { return stride_ == row_size() || rows() <= 1; }

  std::byte* raw() const { return data_; }
  // Typed access; T's size must be the element size. Views are shallow: a const Tensor gives mutable data.
  template <typename T>
  T* data() const {
    STRATA_CHECK(sizeof(T) == static_cast<std::size_t>(info(dtype_).block_bytes), "{} read as {} bytes", name(dtype_), sizeof(T));
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  T* row(std::int64_t r) const { return data<T>() + r * stride_; }

  Tensor rows_from(std::int64_t begin, std::int64_t count) const;     // [count, ...] from row `begin`
  Tensor columns(std::int64_t begin, std::int64_t count) const;       // of [R, C]: [R, count], same stride
  Tensor reshape(const Shape& shape) const;                           // same elements; a strided view keeps its rows

 private:
  static std::int64_t row_elements(const Shape& shape) {
    std::int64_t n = 1;
    for (int i = 1; i < shape.rank(); ++i) n *= shape[i];
    return n;
  }

  std::byte* data_ = nullptr;
  Shape shape_;
  std::int64_t stride_ = 0;
  DType dtype_ = DType::kF32;
  Device device_ = Device::kCpu;
};

// Owns a block of memory on one device for life. Move only. A backend makes them (Ops::allocate); host ones are made here.
class Buffer {
 public:
  using Release = void (*)(void* data, std::size_t bytes);

  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Device device, Release release)
      : data_(data), bytes_(bytes), device_(device), release_(release) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  // Zeroed host memory, aligned to 64 bytes (2 MiB and huge pages asked for from 4 MiB on). Throws Error when there is none.
  static Buffer host(std::size_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  Tensor view(DType dtype, const Shape& shape, std::size_t byte_offset = 0) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_ = Device::kCpu;
  Release release_ = nullptr;
};

}  // namespace strata
