#include "runtime/padding.h"

#include <algorithm>
#include <bit>

namespace strata {

int padded_count(int n) {
  if (n <= 8) return n;
  const int step = 1 << (std::bit_width(static_cast<unsigned>(n - 1)) - 3);
  return (n + step - 1) / step * step;
}

BatchShape padded_shape(const BatchShape& shape) {
  constexpr int kLeastContext = 256;
  BatchShape to = shape;
  to.longest_run = padded_count(shape.longest_run);
  to.longest_context =
      static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(shape.longest_context, kLeastContext))));
  to.logit_rows = padded_count(shape.logit_rows);
  to.saves = padded_count(shape.saves);
  for (to.sequences = padded_count(shape.sequences);; to.sequences = padded_count(to.sequences + 1)) {
    const int added = to.sequences - shape.sequences;
    to.rows = padded_count(shape.rows + added);
    if (to.rows - shape.rows <= added * to.longest_run) return to;
  }
}

}  // namespace strata
