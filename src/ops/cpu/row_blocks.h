// Spreads the rows of an op over the threads in pieces worth waking one for.
#pragma once

#include <algorithm>

#include "ops/cpu/thread_pool.h"

namespace strata {

// Calls body(begin, end) for row ranges that cover [0, rows); each has about kPieceElements elements of work.
// The cut never changes a row's result: a row is one piece of work.
template <typename Body>
void for_row_blocks(ThreadPool& threads, std::int64_t rows, std::int64_t row_elements, Body&& body) {
  constexpr std::int64_t kPieceElements =
      16 * 1024;  // 5 to 20 us of elementwise work, against about 1 us to share it
  const std::int64_t block =
      std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, row_elements));
  threads.parallel_for((rows + block - 1) / block,
                       [&](std::int64_t i) { body(i * block, std::min(rows, (i + 1) * block)); });
}

}  // namespace strata
