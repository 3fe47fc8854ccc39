// The extents of a tensor, at most four, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace strata {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return extents_[static_cast<std::size_t>(i < 0 ? rank_ + i : i)]; }
  std::int64_t elements() const;
  void append(std::int64_t extent);
  bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "[3, 64]"

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace strata
