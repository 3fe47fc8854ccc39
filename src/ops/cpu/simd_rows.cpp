#include "ops/cpu/simd_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/simd_rows.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));

// The first n lanes from memory, zero beyond.
HWY_INLINE V load_some(const float* x, std::int64_t n) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i] = x[i];
  return hn::Load(F32(), lanes);
}

HWY_INLINE void store_some(V v, float* to, std::int64_t n) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, F32(), lanes);
  for (std::int64_t i = 0; i < n; ++i) to[i] = lanes[i];
}

// to[i] = f(x[i], y[i]), the last vector through a copy, so that every element goes through the same
// instructions.
template <typename F>
HWY_INLINE void map(float* to, const float* x, const float* y, std::int64_t n, F f) {
  const F32 d;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(f(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, to + i);
  if (i < n) store_some(f(load_some(x + i, n - i), load_some(y + i, n - i)), to + i, n - i);
}

template <typename Body>
HWY_INLINE void with_activation(Activation activation, Body body) {
  switch (activation) {
#define STRATA_CASE(name) \
  case Activation::name:  \
    return body(std::integral_constant<Activation, Activation::name>())
    STRATA_CASE(kSilu);
    STRATA_CASE(kGeluTanh);
    STRATA_CASE(kGelu);
    STRATA_CASE(kRelu2);
    STRATA_CASE(kSigmoid);
    STRATA_CASE(kNone);
#undef STRATA_CASE
    case Activation::kClampedSwiGlu:
      break;
  }
  STRATA_CHECK(false, "activation {} is not of one argument", static_cast<int>(activation));
}

}  // namespace

float sum_of_squares(const float* x, std::int64_t n) {
  const F32 d;
  V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const V v = hn::LoadU(d, x + i + j * kLanes);
      sums[j] = hn::MulAdd(v, v, sums[j]);
    }
  }
  for (; i < n; i += kLanes) {
    const V v = i + kLanes <= n ? hn::LoadU(d, x + i) : load_some(x + i, n - i);
    sums[0] = hn::MulAdd(v, v, sums[0]);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

void scale_row(float* to, const float* x, float factor, const float* weight, std::int64_t n) {
  const V f = hn::Set(F32(), factor);
  if (weight == nullptr) {
    map(to, x, x, n, [f](V v, V) { return hn::Mul(v, f); });
  } else {
    map(to, x, weight, n, [f](V v, V w) { return hn::Mul(hn::Mul(v, f), w); });
  }
}

void activate_row(Activation activation, float* to, const float* x, std::int64_t n) {
  with_activation(activation, [&](auto a) {
    map(to, x, x, n, [](V v, V) { return activation_of<decltype(a)::value>(F32(), v); });
  });
}

void gate_row(Activation activation, float* to, const float* gate, const float* x, float limit,
              std::int64_t n) {
  if (activation == Activation::kClampedSwiGlu) {
    map(to, gate, x, n, [limit](V g, V u) { return clamped_swiglu_of(F32(), g, u, limit); });
    return;
  }
  with_activation(activation, [&](auto a) {
    map(to, gate, x, n, [](V g, V v) { return hn::Mul(activation_of<decltype(a)::value>(F32(), g), v); });
  });
}

void softcap_row(float* x, float factor, float softcap, std::int64_t n) {
  map(x, x, x, n, [=](V v, V) { return softcap_of(F32(), hn::Mul(v, hn::Set(F32(), factor)), softcap); });
}

void rotate_row(float* a, float* b, const float* cosines, const float* sines, std::int64_t n) {
  const F32 d;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V c = hn::LoadU(d, cosines + i), s = hn::LoadU(d, sines + i), x = hn::LoadU(d, a + i),
            y = hn::LoadU(d, b + i);
    hn::StoreU(hn::Sub(hn::Mul(x, c), hn::Mul(y, s)), d, a + i);
    hn::StoreU(hn::Add(hn::Mul(y, c), hn::Mul(x, s)), d, b + i);
  }
  for (; i < n; ++i) {
    const float x = a[i], y = b[i];
    a[i] = x * cosines[i] - y * sines[i];
    b[i] = y * cosines[i] + x * sines[i];
  }
}

void widen_row(DType dtype, float* to, const std::byte* from, std::int64_t n) {
  const F32 d;
  const hn::Rebind<std::uint16_t, F32> d16;
  const hn::Rebind<hwy::float16_t, F32> half;
  const auto* wide = reinterpret_cast<const std::uint16_t*>(from);
  const auto* narrow = reinterpret_cast<const std::uint8_t*>(from);
  std::int64_t i = 0;
  if (dtype == DType::kBF16) {
    const hn::RebindToUnsigned<F32> d32;
    for (; i + kLanes <= n; i += kLanes) {
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, wide + i)))), d, to + i);
    }
    for (; i < n; ++i) to[i] = to_float(BFloat16{wide[i]});
  } else if (dtype == DType::kF16) {
    for (; i + kLanes <= n; i += kLanes) {
      hn::StoreU(hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(d16, wide + i))), d, to + i);
    }
    for (; i < n; ++i) to[i] = half_to_float(wide[i]);
  } else {
    // E4M3 moved into the bits of a half is 2^8 times too small (exponent biases 7 and 15), subnormals
    // included.
    const hn::Rebind<std::uint8_t, F32> d8;
    const V scale = hn::Set(d, 256.0F), nan = hn::Set(d, f8e4m3_to_float(0x7F)), most = hn::Set(d, 448.0F);
    for (; i + kLanes <= n; i += kLanes) {
      const auto bits = hn::PromoteTo(d16, hn::LoadU(d8, narrow + i));
      const auto sign = hn::ShiftLeft<8>(hn::And(bits, hn::Set(d16, 0x80)));
      const auto rest = hn::ShiftLeft<7>(hn::And(bits, hn::Set(d16, 0x7F)));
      const V value = hn::Mul(hn::PromoteTo(d, hn::BitCast(half, hn::Or(sign, rest))), scale);
      hn::StoreU(hn::IfThenElse(hn::Gt(hn::Abs(value), most), nan, value), d, to + i);
    }
    for (; i < n; ++i) to[i] = f8e4m3_to_float(narrow[i]);
  }
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(sum_of_squares);
HWY_EXPORT(scale_row);
HWY_EXPORT(activate_row);
HWY_EXPORT(gate_row);
HWY_EXPORT(softcap_row);
HWY_EXPORT(rotate_row);
HWY_EXPORT(widen_row);

namespace simd {

float sum_of_squares(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(sum_of_squares)(x, n); }
void scale_row(float* to, const float* x, float factor, const float* weight, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(scale_row)(to, x, factor, weight, n);
}
void activate_row(Activation activation, float* to, const float* x, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(activate_row)(activation, to, x, n);
}
void gate_row(Activation activation, float* to, const float* gate, const float* x, float limit,
              std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(gate_row)(activation, to, gate, x, limit, n);
}
void softcap_row(float* x, float factor, float softcap, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(softcap_row)(x, factor, softcap, n);
}
void rotate_row(float* a, float* b, const float* cosines, const float* sines, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(rotate_row)(a, b, cosines, sines, n);
}
void widen_row(DType dtype, float* to, const std::byte* from, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(widen_row)(dtype, to, from, n);
}

}  // namespace simd
}  // namespace strata
#endif  // HWY_ONCE
