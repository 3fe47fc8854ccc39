// The element types of KV pages: stored from f32 and read back as f32.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace strata {

// Types a page may have. Anything else is a broken invariant.
void check_kv_dtype(DType dtype);

// n floats from `from` into elements [at, at + n) of an array of `dtype`.
void store_kv(DType dtype, std::byte* to, std::int64_t at, const float* from, std::int64_t n);

// The reverse.
void load_kv(DType dtype, float* to, const std::byte* from, std::int64_t at, std::int64_t n);

// Address of element 0 of what page slot `slot` holds; pages [P, kPageTokens, heads, dim].
std::byte* kv_entry(const Tensor& pages, std::int64_t slot);

}  // namespace strata
