// Vector forms of the functions ops are made of. Included once for each instruction set, hence no pragma
// once.
#if defined(STRATA_OPS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_OPS_CPU_SIMD_MATH_INL_H_
#undef STRATA_OPS_CPU_SIMD_MATH_INL_H_
#else
#define STRATA_OPS_CPU_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include "ops/ops.h"

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x to 2 ulp; 0 below -87.3, saturated above 88.3, NaN stays NaN. Polynomial of Cephes' expf (Moshier).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of(D d, V x) {
  const auto low = hn::Set(d, -87.3F), high = hn::Set(d, 88.3F);
  // Max and Min return their second operand where one is NaN (x86).
  const V c = hn::Min(high, hn::Max(low, x));
  const V q = hn::Round(hn::Mul(c, hn::Set(d, 1.44269504F)));
  V r = hn::NegMulAdd(q, hn::Set(d, 0.693359375F), c);  // ln 2 in two parts
  r = hn::NegMulAdd(q, hn::Set(d, -2.12194440e-4F), r);
  V p = hn::MulAdd(hn::Set(d, 1.9875691500e-4F), r, hn::Set(d, 1.3981999507e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0F));
  const hn::RebindToSigned<D> di;
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, q), hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, low), hn::Mul(p, hn::BitCast(d, power)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_of(D d, V x) {
  const V one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, exp_of(d, hn::Neg(x))));
}

// x Phi(x), with erfc of Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_of(D d, V x) {
  const V one = hn::Set(d, 1.0F), z = hn::Abs(hn::Mul(x, hn::Set(d, 0.7071067811865476F)));
  const V t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911F), z, one));
  V p = hn::MulAdd(hn::Set(d, 1.061405429F), t, hn::Set(d, -1.453152027F));
  p = hn::MulAdd(p, t, hn::Set(d, 1.421413741F));
  p = hn::MulAdd(p, t, hn::Set(d, -0.284496736F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.254829592F));
  const V tail = hn::Mul(hn::Set(d, 0.5F), hn::Mul(hn::Mul(p, t), exp_of(d, hn::Neg(hn::Mul(z, z)))));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)));
}

template <Activation kActivation, class D, class V = hn::Vec<D>>
HWY_INLINE V activation_of(D d, V x) {
  if constexpr (kActivation == Activation::kSilu) {
    return hn::Mul(x, sigmoid_of(d, x));
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    // (1 + tanh u) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    const V cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715F), hn::Set(d, 1.0F));
    return hn::Mul(x, sigmoid_of(d, hn::Mul(hn::Mul(x, cubic), hn::Set(d, 1.5957691216057308F))));
  } else if constexpr (kActivation == Activation::kGelu) {
    return gelu_of(d, x);
  } else if constexpr (kActivation == Activation::kRelu2) {
    const V positive = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
    return hn::Mul(positive, positive);
  } else if constexpr (kActivation == Activation::kSigmoid) {
    return sigmoid_of(d, x);
  } else {
    return x;
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V clamped_swiglu_of(D d, V gate, V up, float limit) {
  const V most = hn::Set(d, limit);
  const V g = hn::Min(most, gate), u = hn::Max(hn::Set(d, -limit), hn::Min(most, up));
  return hn::Mul(hn::Mul(g, sigmoid_of(d, hn::Mul(g, hn::Set(d, 1.702F)))), hn::Add(u, hn::Set(d, 1.0F)));
}

// To 2 ulp; Cephes' tanhf (Moshier): a polynomial below 0.625, by the exponential beyond.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_of(D d, V x) {
  const V one = hn::Set(d, 1.0F), two = hn::Set(d, 2.0F), size = hn::Abs(x), z = hn::Mul(x, x);
  V p = hn::MulAdd(hn::Set(d, -5.70498872745e-3F), z, hn::Set(d, 2.06390887954e-2F));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2F));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1F));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1F));
  const V near = hn::MulAdd(hn::Mul(p, z), x, x);
  const V far = hn::Sub(one, hn::Div(two, hn::Add(exp_of(d, hn::Mul(size, two)), one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625F)), near, hn::CopySign(far, x));
}

// softcap * tanh(x / softcap)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V softcap_of(D d, V x, float softcap) {
  const V cap = hn::Set(d, softcap);
  return hn::Mul(cap, tanh_of(d, hn::Div(x, cap)));
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
