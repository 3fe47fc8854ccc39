#include "tensor/shape.h"

#include "base/check.h"

namespace strata {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  for (const std::int64_t e : extents) append(e);
}

void Shape::append(std::int64_t extent) {
  STRATA_CHECK(rank_ < kMaxRank, "a shape has at most {} extents", kMaxRank);
  STRATA_CHECK(extent >= 0, "negative extent {}", extent);
  extents_[static_cast<std::size_t>(rank_++)] = extent;
}

std::int64_t Shape::elements() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= extents_[static_cast<std::size_t>(i)];
  return n;
}

std::string Shape::to_string() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) s += fmt::format("{}{}", i > 0 ? ", " : "", extents_[static_cast<std::size_t>(i)]);
  return s + "]";
}

}  // namespace strata
