// Where things lie in KV pages.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

constexpr int kTokensPerPage = 64;  // kPageTokens of ops/batch.h

// Element where the entry of page slot `slot` (page * 64 + offset) begins; `width` elements an entry.
__device__ __forceinline__ std::int64_t page_entry(const Rows& pages, int slot, int width) {
  return slot / kTokensPerPage * pages.stride + std::int64_t{slot % kTokensPerPage} * width;
}

}  // namespace strata::cuda
