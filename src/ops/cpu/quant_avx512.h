// The vectors of AVX-512 for quant_decode.h, included inside the namespace and target of each body.

constexpr int kBytes = 64;
using U8 = std::uint8_t __attribute__((vector_size(64)));
using U16 = std::uint16_t __attribute__((vector_size(64)));
using I32 = std::int32_t __attribute__((vector_size(64)));
using F32 = float __attribute__((vector_size(64)));

inline F32 all(float x) { return (F32)_mm512_set1_ps(x); }
inline F32 fma(F32 a, F32 b, F32 c) { return (F32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
inline F32 halves(const std::byte* p) { return (F32)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline __m128i bytes16(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline F32 signed_bytes(const std::byte* p) { return (F32)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes16(p))); }
inline F32 unsigned_bytes(const std::byte* p) { return (F32)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes16(p))); }
inline F32 exponents(const std::byte* p) {
  return (F32)_mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes16(p)), 23)), _mm512_set1_ps(0.5F));
}
inline U8 look_up(U8 table, U8 index) { return (U8)_mm512_shuffle_epi8((__m512i)table, (__m512i)index); }
inline U8 table_of(const std::int8_t* sixteen, int add) {
  const __m128i t = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)), _mm_set1_epi8(static_cast<char>(add)));
  return (U8)_mm512_broadcast_i32x4(t);
}
