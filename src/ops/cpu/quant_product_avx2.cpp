// Quantised products with AVX2 alone.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "ops/cpu/quant_product.h"

#define QUANT_TILE_ROWS 3
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#include "ops/cpu/quantize_activations.h"
namespace strata::cpu {
namespace {

#include "ops/cpu/quant_avx2.h"

// vpmaddubsw adds two products in 16 bits: exact while the unsigned side is at most 127 (or 128 against 127).
constexpr bool kFullUnsigned = false;
inline I32 sum_pairs(I32 sum, __m256i pairs) {
  return (I32)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline I32 dot(I32 sum, U8 w, int x) { return sum_pairs(sum, _mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32(x))); }
inline I32 dot_signed(I32 sum, U8 w, int x) {  // |w| times x with the sign of w
  const __m256i size = _mm256_abs_epi8((__m256i)w), turned = _mm256_sign_epi8(_mm256_set1_epi32(x), (__m256i)w);
  return sum_pairs(sum, _mm256_maddubs_epi16(size, turned));
}

#include "ops/cpu/quant_decode.h"
#include "ops/cpu/quant_body.h"

}  // namespace

const QuantKernels kQuantAvx2{"avx2", quantize, product};

}  // namespace strata::cpu
#pragma GCC pop_options
#endif
