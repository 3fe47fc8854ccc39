#include "runtime/metrics.h"

#include <algorithm>
#include <numeric>

namespace strata {

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<std::size_t>(at)];
  sum += value;
}

std::uint64_t Histogram::count() const { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }

}  // namespace strata
