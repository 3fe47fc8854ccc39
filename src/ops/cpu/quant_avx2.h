// What the AVX2 and AVX-VNNI bodies share, included inside the namespace and target of each.

constexpr int kBytes = 32;
using U8 = std::uint8_t __attribute__((vector_size(32)));
using U16 = std::uint16_t __attribute__((vector_size(32)));
using I32 = std::int32_t __attribute__((vector_size(32)));
using F32 = float __attribute__((vector_size(32)));

inline F32 all(float x) { return (F32)_mm256_set1_ps(x); }
inline F32 fma(F32 a, F32 b, F32 c) { return (F32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
inline F32 halves(const std::byte* p) { return (F32)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline __m128i bytes8(const std::byte* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
inline F32 signed_bytes(const std::byte* p) { return (F32)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes8(p))); }
inline F32 unsigned_bytes(const std::byte* p) { return (F32)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes8(p))); }
inline F32 exponents(const std::byte* p) {
  return (F32)_mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes8(p)), 23)), _mm256_set1_ps(0.5F));
}
inline U8 look_up(U8 table, U8 index) { return (U8)_mm256_shuffle_epi8((__m256i)table, (__m256i)index); }
inline U8 table_of(const std::int8_t* sixteen, int add) {
  const __m128i t = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)), _mm_set1_epi8(static_cast<char>(add)));
  return (U8)_mm256_broadcastsi128_si256(t);
}
