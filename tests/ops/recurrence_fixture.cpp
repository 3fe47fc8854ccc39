#include "ops/recurrence_fixture.h"

namespace strata::testing {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace

Recurrence conv_recurrence(int channels, int width, bool bias, bool silu) {
  const HostTensor weight = random_tensor({channels, width}, 11, 0.5F);
  const HostTensor biases = bias ? random_tensor({channels}, 12) : HostTensor();
  Recurrence r;
  r.name = fmt::format("conv {}x{}", channels, width);
  r.inputs = r.outputs = r.tape = channels;
  r.state = channels * (width - 1);
  r.run = [=](CpuOps& ops, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch& batch) {
    ops.causal_conv({out, in, weight, biases, silu ? Activation::kSilu : Activation::kNone,
                     state.reshape({state.rows(), channels, width - 1}), tape},
                    batch);
  };
  r.formula = [=](double* out, const double* in, double* state) {
    for (int c = 0; c < channels; ++c) {
      double* past = state + c * (width - 1);
      const float* w = weight.f32() + c * width;
      double sum = (bias ? biases.f32()[c] : 0.0) + w[width - 1] * in[c];
      for (int j = 0; j + 1 < width; ++j) sum += w[j] * past[j];
      out[c] = silu ? sum * sigmoid(sum) : sum;
      for (int j = 0; j + 2 < width; ++j) past[j] = past[j + 1];
      if (width > 1) past[width - 2] = in[c];
    }
  };
  return r;
}

Recurrence delta_recurrence(int key_heads, int value_heads, int key_dim, int value_dim) {
  const HostTensor a_log = random_tensor({value_heads}, 21, 0.5F), dt_bias = random_tensor({value_heads}, 22);
  const int keys = key_heads * key_dim, qkv = 2 * keys + value_heads * value_dim;
  Recurrence r;
  r.name = fmt::format("delta {}/{} heads of {}x{}", key_heads, value_heads, key_dim, value_dim);
  r.inputs = r.tape = qkv + 2 * value_heads;
  r.outputs = value_heads * value_dim;
  r.state = value_heads * key_dim * value_dim;
  r.run = [=](CpuOps& ops, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch& batch) {
    ops.gated_delta({.out = out.reshape({out.rows(), value_heads, value_dim}),
                     .qkv = in.columns(0, qkv),
                     .a = in.columns(qkv, value_heads),
                     .b = in.columns(qkv + value_heads, value_heads),
                     .a_log = a_log,
                     .dt_bias = dt_bias,
                     .key_heads = key_heads,
                     .value_heads = value_heads,
                     .key_dim = key_dim,
                     .value_dim = value_dim,
                     .state = state.reshape({state.rows(), value_heads, key_dim, value_dim}),
                     .tape = tape},
                    batch);
  };
  r.formula = [=](double* out, const double* in, double* state) {
    for (int h = 0; h < value_heads; ++h) {
      const double* q = in + h / (value_heads / key_heads) * key_dim;
      const double* k = q + keys;
      const double* v = in + 2 * keys + h * value_dim;
      double qq = 1e-6, kk = 1e-6;
      for (int i = 0; i < key_dim; ++i) qq += q[i] * q[i], kk += k[i] * k[i];
      const double q_scale = 1 / std::sqrt(qq * key_dim), k_scale = 1 / std::sqrt(kk);
      const double decay = std::exp(-std::exp(a_log.f32()[h]) * softplus(in[qkv + h] + dt_bias.f32()[h]));
      const double beta = sigmoid(in[qkv + value_heads + h]);
      double* s = state + h * key_dim * value_dim;
      for (int j = 0; j < value_dim; ++j) {
        double known = 0;
        for (int i = 0; i < key_dim; ++i) known += (s[i * value_dim + j] *= decay) * k[i] * k_scale;
        const double delta = beta * (v[j] - known);
        double& o = out[h * value_dim + j] = 0;
        for (int i = 0; i < key_dim; ++i)
          o += (s[i * value_dim + j] += k[i] * k_scale * delta) * q[i] * q_scale;
      }
    }
  };
  return r;
}

Recurrence ssd_recurrence(int heads, int head_dim, int groups, int state_dim, float dt_min, float dt_max) {
  const HostTensor a_log = random_tensor({heads}, 31, 0.5F), dt_bias = random_tensor({heads}, 32),
                   d = random_tensor({heads}, 33);
  const int channels = heads * head_dim, xbc = channels + 2 * groups * state_dim;
  Recurrence r;
  r.name = fmt::format("ssd {} heads of {}x{}, {} groups", heads, head_dim, state_dim, groups);
  r.inputs = r.tape = xbc + heads;
  r.outputs = channels;
  r.state = channels * state_dim;
  r.run = [=](CpuOps& ops, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch& batch) {
    ops.ssd({.out = out.reshape({out.rows(), heads, head_dim}),
             .xbc = in.columns(0, xbc),
             .dt = in.columns(xbc, heads),
             .a_log = a_log,
             .dt_bias = dt_bias,
             .d = d,
             .dt_min = dt_min,
             .dt_max = dt_max,
             .heads = heads,
             .head_dim = head_dim,
             .groups = groups,
             .state_dim = state_dim,
             .state = state.reshape({state.rows(), heads, head_dim, state_dim}),
             .tape = tape},
            batch);
  };
  r.formula = [=](double* out, const double* in, double* state) {
    for (int h = 0; h < heads; ++h) {
      const double* b = in + channels + h / (heads / groups) * state_dim;
      const double* c = b + groups * state_dim;
      double dt = std::max<double>(softplus(in[xbc + h] + dt_bias.f32()[h]), dt_min);
      if (dt_max > 0) dt = std::min<double>(dt, dt_max);
      const double decay = std::exp(-std::exp(a_log.f32()[h]) * dt);
      for (int p = 0; p < head_dim; ++p) {
        const double x = in[h * head_dim + p];
        double& y = out[h * head_dim + p] = d.f32()[h] * x;
        double* s = state + (h * head_dim + p) * state_dim;
        for (int n = 0; n < state_dim; ++n) y += (s[n] = s[n] * decay + dt * x * b[n]) * c[n];
      }
    }
  };
  return r;
}

}  // namespace strata::testing
