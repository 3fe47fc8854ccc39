// Functions of one row of floats in SIMD, for the instruction set of this machine: what pointwise ops and
// norms are made of. An element's result depends on its column and the row's length only.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace strata::simd {

float sum_of_squares(const float* x, std::int64_t n);

// to[i] = x[i] * factor * weight[i]; weight may be null. In place is fine.
void scale_row(float* to, const float* x, float factor, const float* weight, std::int64_t n);

// to = act(x); any activation of one argument.
void activate_row(Activation activation, float* to, const float* x, std::int64_t n);

// to = act(gate) * x; kClampedSwiGlu too (limit is its own).
void gate_row(Activation activation, float* to, const float* gate, const float* x, float limit,
              std::int64_t n);

// x = softcap * tanh(x * factor / softcap)
void softcap_row(float* x, float factor, float softcap, std::int64_t n);

// Rotates the pairs (a[i], b[i]).
void rotate_row(float* a, float* b, const float* cosines, const float* sines, std::int64_t n);

// f32 from bf16, f16 or f8_e4m3 bits.
void widen_row(DType dtype, float* to, const std::byte* from, std::int64_t n);

}  // namespace strata::simd
