#include "ops/cpu/kv_convert.h"

#include <array>
#include <cstring>

#include "ops/batch.h"

namespace strata {
namespace {

const std::array<float, 256>& f8_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v{};
    for (int i = 0; i < 256; ++i)
      v[static_cast<std::size_t>(i)] = f8e4m3_to_float(static_cast<std::uint8_t>(i));
    return v;
  }();
  return values;
}

}  // namespace

void check_kv_dtype(DType dtype) {
  STRATA_CHECK(
      dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF8E4M3,
      "KV pages of {}, expected f32, f16, bf16 or f8_e4m3", name(dtype));
}

void store_kv(DType dtype, std::byte* to, std::int64_t at, const float* from, std::int64_t n) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(to + at * 4, from, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < n; ++i)
        reinterpret_cast<std::uint16_t*>(to)[at + i] = float_to_half(from[i]);
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < n; ++i) reinterpret_cast<BFloat16*>(to)[at + i] = to_bfloat16(from[i]);
      return;
    case DType::kF8E4M3:
      for (std::int64_t i = 0; i < n; ++i)
        reinterpret_cast<std::uint8_t*>(to)[at + i] = float_to_f8e4m3(from[i]);
      return;
    default:
      check_kv_dtype(dtype);
  }
}

void load_kv(DType dtype, float* to, const std::byte* from, std::int64_t at, std::int64_t n) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(to, from + at * 4, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < n; ++i)
        to[i] = half_to_float(reinterpret_cast<const std::uint16_t*>(from)[at + i]);
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(reinterpret_cast<const BFloat16*>(from)[at + i]);
      return;
    case DType::kF8E4M3: {
      const auto& values = f8_values();
      for (std::int64_t i = 0; i < n; ++i)
        to[i] = values[reinterpret_cast<const std::uint8_t*>(from)[at + i]];
      return;
    }
    default:
      check_kv_dtype(dtype);
  }
}

std::byte* kv_entry(const Tensor& pages, std::int64_t slot) {
  STRATA_CHECK(slot >= 0 && slot < pages.rows() * kPageTokens, "KV slot {} of {}", slot,
               pages.rows() * kPageTokens);
  const std::int64_t entry = pages[2] * pages[3];
  return pages.raw() +
         bytes_of(pages.dtype(), slot / kPageTokens * pages.stride() + slot % kPageTokens * entry);
}

}  // namespace strata
