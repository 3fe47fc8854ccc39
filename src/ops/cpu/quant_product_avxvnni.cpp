// Quantised products with AVX-VNNI: vectors of AVX2 and a dot product of bytes.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "ops/cpu/quant_product.h"

#define QUANT_TILE_ROWS 3
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#include "ops/cpu/quantize_activations.h"
namespace strata::cpu {
namespace {

#include "ops/cpu/quant_avx2.h"

constexpr bool kFullUnsigned = true;
inline I32 dot(I32 sum, U8 w, int x) {
  return (I32)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, _mm256_set1_epi32(x));
}
inline I32 dot_signed(I32 sum, U8, int) { return sum; }  // not used: dot takes all unsigned bytes

#include "ops/cpu/quant_decode.h"
#include "ops/cpu/quant_body.h"

}  // namespace

const QuantKernels kQuantAvxVnni{"avx-vnni", quantize, product};

}  // namespace strata::cpu
#pragma GCC pop_options
#endif
