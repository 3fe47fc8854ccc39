// Activations to integers with AVX2; the bits are those of quantize_activations.h. Included inside the namespace
// and target of the file that uses it.

// Codes of 32 inputs, their scale, and for each group its start and shift.
template <int kGroup>
inline void quantize_activations(const float* x, int bias, const QuantRows& to) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
  for (std::int64_t b = 0; b < to.inputs / 32; ++b, x += 32) {
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + i * 8);
      most = _mm256_max_epi32(
          most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));  // magnitudes compare as integers
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    const float peak = _mm_cvtss_f32(_mm_castsi128_ps(m));
    const float scale = peak / 127.0F, inverse = peak > 1e-30F ? 127.0F / peak : 0.0F;
    __m256i code[4];
    for (int i = 0; i < 4; ++i) code[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    // Packing works within halves: four inputs are a lane of 32 bits afterwards, which `order` puts back.
    const __m256i packed = _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(code[0], code[1]), _mm256_packs_epi32(code[2], code[3])),
        order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.codes + b * 32), packed);
    to.scale[b * to.stride] = scale;
    const __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(ones8, packed), ones16);
    __m128i low = _mm256_castsi256_si128(fours), high = _mm256_extracti128_si256(fours, 1);
    if (kGroup == 32) low = _mm_add_epi32(low, high);
    for (int g = 0; g < 32 / kGroup; ++g) {
      __m128i sums = g == 0 ? low : high;
      sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4E));
      const std::int32_t sum = _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xB1)));
      to.start[(b * (32 / kGroup) + g) * to.stride] = -bias * sum;
      to.shift[(b * (32 / kGroup) + g) * to.stride] = scale * static_cast<float>(sum);
    }
  }
}
