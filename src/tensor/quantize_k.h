// The parts of quantize_row that its two files share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace strata {

// One block of 256 of Q2_K..Q6_K or IQ4_XS.
void quantize_super_block(DType dtype, const float* x, std::byte* block);

// Index of the value nearest to x.
int nearest_in(const std::array<std::int8_t, 16>& values, float x);
// The scale of 32 elements coded by kIq4Values with the least squared error of those tried.
float fit_iq4(const float* x);

}  // namespace strata
