// Quantised products with AVX-512 VNNI.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "ops/cpu/quant_product.h"

#define QUANT_TILE_ROWS 8
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#include "ops/cpu/quantize_activations.h"
namespace strata::cpu {
namespace {

#include "ops/cpu/quant_avx512.h"

constexpr bool kFullUnsigned = true;
inline I32 dot(I32 sum, U8 w, int x) { return (I32)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(x)); }
inline I32 dot_signed(I32 sum, U8, int) { return sum; }  // not used: dot takes all unsigned bytes

#include "ops/cpu/quant_decode.h"
#include "ops/cpu/quant_body.h"

}  // namespace

const QuantKernels kQuantAvx512{"avx512-vnni", quantize, product};

}  // namespace strata::cpu
#pragma GCC pop_options
#endif
