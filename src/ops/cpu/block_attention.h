// The part of `attention` for rows that see chosen blocks of tokens only.
#pragma once

#include "ops/cpu/thread_pool.h"
#include "ops/ops.h"

namespace strata {

// args are checked, args.blocks is given.
void block_attention(const AttentionArgs& args, const Batch& batch, ThreadPool& threads);

}  // namespace strata
