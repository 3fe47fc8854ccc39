// Scalar forms of the functions ops are made of; the SIMD bodies use vector forms of the same.
#pragma once

#include <cmath>

#include "base/check.h"
#include "ops/ops.h"

namespace strata {

inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// log(1 + exp(x)); the identity beyond 20, where f32 cannot tell them apart.
inline float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

// Elementwise activations. Gelu: Hendrycks and Gimpel 2016, exact (erf) and by tanh; relu^2: So et al. 2021.
inline float activation_of(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kGeluTanh: {
      constexpr float kSqrt2OverPi = 0.7978845608028654F;
      return 0.5F * x * (1.0F + std::tanh(kSqrt2OverPi * (x + 0.044715F * x * x * x)));
    }
    case Activation::kGelu:
      return 0.5F * x * (1.0F + std::erf(x * 0.7071067811865476F));
    case Activation::kRelu2:
      return x > 0 ? x * x : 0.0F;
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kNone:
      return x;
    case Activation::kClampedSwiGlu:
      break;
  }
  STRATA_CHECK(false, "activation {} is not of one argument", static_cast<int>(activation));
}

// The clamped SwiGLU of gpt_oss (its modelling code in transformers): 1.702 is the sigmoid that approximates
// gelu.
inline float clamped_swiglu(float gate, float up, float limit) {
  const float g = std::fmin(gate, limit), u = std::fmax(std::fmin(up, limit), -limit);
  return g * sigmoid(1.702F * g) * (u + 1.0F);
}

}  // namespace strata
