// Searches for the scale (and minimum) of a group of elements that make the least squared error.
#pragma once

#include <algorithm>
#include <cmath>

namespace strata {

// Adding 1.5 * 2^23 rounds a small float to a whole number (ties to even), which compilers vectorise, unlike lround.
inline int nearest_code(float x, float inverse, int low, int high) {
  constexpr float kRound = 12582912.0F;
  const float q = std::min(std::max(x * inverse, static_cast<float>(low)), static_cast<float>(high));
  return static_cast<int>((q + kRound) - kRound);
}

// scale such that scale * code is nearest to x, codes in [low, high], low = -high - 1. 0 for a group of zeros. For each of several
// trial scales near the largest element over `low`, the best scale of its codes is sum(x q) / sum(q q).
inline float fit_symmetric(const float* x, int n, int low, int high) {
  float peak = 0;
  for (int i = 0; i < n; ++i) peak = std::abs(x[i]) > std::abs(peak) ? x[i] : peak;
  if (std::abs(peak) < 1e-30F) return 0;
  float best = 0, scale = 0;
  for (int trial = -12; trial <= 12; ++trial) {
    const float inverse = (static_cast<float>(low) + 0.1F * static_cast<float>(trial)) / peak;
    float xq = 0, qq = 0;
    for (int i = 0; i < n; ++i) {
      const auto q = static_cast<float>(nearest_code(x[i], inverse, low, high));
      const float weight = x[i] * x[i];  // large elements matter more to the product
      xq += weight * x[i] * q;
      qq += weight * q * q;
    }
    if (qq > 0 && xq * xq > best * qq) {
      best = xq * xq / qq;
      scale = xq / qq;
    }
  }
  return scale;
}

struct Affine {
  float scale, min;  // x is nearest to scale * code - min
};

// Codes in [0, high], min >= 0 (as the K types store it). For each trial scale, the best line through (code, x).
inline Affine fit_affine(const float* x, int n, int high) {
  float low = std::min(0.0F, *std::min_element(x, x + n));
  const float top = *std::max_element(x, x + n);
  if (top - low < 1e-30F) return {0, -low};
  Affine best{(top - low) / static_cast<float>(high), -low};
  const auto error = [&](const Affine& a) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
      const auto q = static_cast<float>(nearest_code(x[i] + a.min, 1 / a.scale, 0, high));
      const float e = a.scale * q - a.min - x[i];
      sum += e * e;
    }
    return sum;
  };
  float least = error(best);
  for (int trial = -9; trial <= 9; ++trial) {
    const float inverse = (static_cast<float>(high) + 0.1F * static_cast<float>(trial)) / (top - low);
    float sx = 0, sq = 0, sqq = 0, sxq = 0;
    for (int i = 0; i < n; ++i) {
      const auto q = static_cast<float>(nearest_code(x[i] - low, inverse, 0, high));
      sx += x[i];
      sq += q;
      sqq += q * q;
      sxq += x[i] * q;
    }
    const auto count = static_cast<float>(n);
    const float det = count * sqq - sq * sq;
    if (det <= 0) continue;
    Affine a{(count * sxq - sx * sq) / det, -(sx * sqq - sq * sxq) / det};
    if (a.min < 0) a = {sqq > 0 ? sxq / sqq : 0, 0};
    if (a.scale <= 0) continue;
    const float e = error(a);
    if (e < least) {
      least = e;
      best = a;
    }
  }
  return best;
}

}  // namespace strata
