// Arena: scratch memory of one step, given back in the order of a stack.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace strata {

// A bump allocator over blocks that grow on demand and stay: the steady state allocates nothing. One thread. What it hands
// out is valid until the enclosing Scratch ends; contents are undefined.
class Arena {
 public:
  struct Mark {
    std::size_t block = 0, used = 0;
    bool operator==(const Mark&) const = default;
  };

  explicit Arena(std::function<Buffer(std::size_t)> allocate, std::size_t block_bytes = std::size_t{8} << 20)
      : allocate_(std::move(allocate)), block_bytes_(block_bytes) {}

  Tensor make(const Shape& shape, DType dtype);
  Mark mark() const { return at_; }
  void release(Mark mark) { at_ = mark; }
  std::size_t bytes() const;        // reserved so far
  std::int64_t blocks() const { return static_cast<std::int64_t>(blocks_.size()); }

 private:
  std::function<Buffer(std::size_t)> allocate_;
  std::size_t block_bytes_;
  std::vector<Buffer> blocks_;
  Mark at_;
};

// What is made after this is given back when it ends.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scratch() { arena_.release(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace strata
