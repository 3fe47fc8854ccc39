// f8_blocks: matrices of finer types in FP8 with a scale for each block of 128 x 128, as published
// checkpoints have them.
#pragma once

#include <vector>

#include "ops/cpu/thread_pool.h"
#include "ops/weight.h"

namespace strata::cpu {

// Every piece as kF8E4M3 [n, K] and its scales, of which each makes the largest value of its block 448, the
// type's largest; pieces that are FP8 already stay as they are. What is made lives in `kept`. Error for
// values that are no numbers.
HostMatrix f8_blocks(const HostMatrix& matrix, ThreadPool& threads, std::vector<Buffer>& kept);

}  // namespace strata::cpu
