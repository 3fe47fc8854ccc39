#include "layers/hyper_residual.h"

namespace strata {
namespace {

Tensor repeated(Tensor x, int streams, Ops& ops) {
  Tensor all = x;
  for (int s = 1; s < streams; ++s) {
    const Tensor wider = ops.make({x.rows(), all.row_size() + x.row_size()}, x.dtype());
    ops.concat(wider, all, x);
    all = wider;
  }
  return all;
}

}  // namespace

HyperResidual::HyperResidual(Tensor x, int streams, const HyperConnection& end, Ops& ops)
    : Residual(x, ops), streams_(streams), dim_(x.row_size()), end_(end) {
  x_ = repeated(x, streams, ops);
  streams_normed_ = ops.make(x_.shape());
  injection_ = ops.make({x.rows(), streams_});
}

// normed_ [T, D] becomes the mixture of the streams; streams_normed_ stays for the injection.
Tensor HyperResidual::mix(const HyperConnection& c) {
  const Scratch scratch(ops_.arena());
  const Tensor x = flush();
  const std::int64_t T = x.rows();
  const Shape split{T, streams_, dim_};
  ops_.gated_norm({.out = streams_normed_.reshape(split),
                   .x = x.reshape(split),
                   .gate = {},
                   .weight = c.norm.weight,
                   .eps = c.norm.eps});
  const Tensor low = ops_.make({T, c.down.outputs()}), weights = ops_.make(x.shape());
  ops_.linear(low, streams_normed_, c.down, {});
  ops_.scale(low, 1 / static_cast<float>(streams_), 0);
  ops_.activate(low, Activation::kSilu);
  ops_.linear(weights, low, c.up, {});
  ops_.mix_streams(normed_, streams_normed_, weights);
  return normed_;
}

AddNorm HyperResidual::entry(const Sublayer& sublayer) {
  const HyperConnection& c = *sublayer.hyper;
  mix(c);
  ops_.linear(injection_, streams_normed_, c.inject, {});
  ops_.scale(injection_, 1 / static_cast<float>(streams_), 0);
  return {.out = normed_};
}

void HyperResidual::leave(const Sublayer&) { pending_ = true; }

Tensor HyperResidual::flush() {
  if (pending_) ops_.inject_streams(x_, output_, injection_);
  pending_ = false;
  return x_;
}

Tensor HyperResidual::finish(const Norm&) { return mix(end_); }

}  // namespace strata
