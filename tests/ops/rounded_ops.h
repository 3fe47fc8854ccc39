// The CPU backend with the roundings of a backend that keeps activations in bf16: what such a backend would
// give if every op were exact. The measure of what bf16 costs, beside which inaccurate kernels show.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cpu/cpu_ops.h"

namespace strata::testing {

// Experts and weights that one route() chose, [T * k] each.
struct Choices {
  std::vector<int> expert;
  std::vector<float> weight;
};

// Writes `choices` over a routing in host memory.
inline void take_choices(const Choices& choices, const Routing& to) {
  std::copy(choices.expert.begin(), choices.expert.end(), to.expert.data<int>());
  std::copy(choices.weight.begin(), choices.weight.end(), to.weight.data<float>());
  auto* first = to.first.data<int>();
  const auto experts = static_cast<int>(to.first.elements() - 1),
             entries = static_cast<int>(choices.expert.size());
  int at = 0;
  for (int e = 0; e < experts; ++e) {
    first[e] = at;
    for (int i = 0; i < entries; ++i) {
      if (choices.expert[static_cast<std::size_t>(i)] == e) to.order.data<int>()[at++] = i;
    }
  }
  first[experts] = at;
}

// What every op writes is rounded to bf16, but for what is f32 on the GPU too: the residual stream, the
// logits of routers and of the head, recurrent states. Also writes down what route() chose, or makes it
// choose.
class RoundedOps final : public CpuOps {
 public:
  // Products of so many outputs (a head's, a router's) stay f32.
  RoundedOps(bool round, std::vector<std::int64_t> exact_outputs)
      : CpuOps(CpuOptions{}), round_(round), exact_(std::move(exact_outputs)) {}

  std::vector<Choices> chosen;                   // by each route() in order
  const std::vector<Choices>* forced = nullptr;  // what each is to choose instead

  void gather_rows(Tensor out, Tensor x, Tensor rows) override {
    CpuOps::gather_rows(out, x, rows);
    round(out);
  }
  void concat(Tensor out, Tensor a, Tensor b) override {
    CpuOps::concat(out, a, b);
    round(out);
  }
  void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) override {
    CpuOps::rms_norm(out, x, weight, eps);
    round(out);
  }
  void add_rms_norm(Tensor out, Tensor x, Tensor delta, float scale, Tensor weight, float eps) override {
    CpuOps::add_rms_norm(out, x, delta, scale, weight, eps);
    round(out);
  }
  void gated_norm(const GatedNormArgs& args) override {
    CpuOps::gated_norm(args);
    round(args.out);
  }
  void multiply(Tensor x, Tensor y) override {
    CpuOps::multiply(x, y);
    round(x);
  }
  void activate(Tensor x, Activation activation) override {
    CpuOps::activate(x, activation);
    round(x);
  }
  void glu(Tensor out, Tensor x, Activation activation, float limit) override {
    CpuOps::glu(out, x, activation, limit);
    round(out);
  }
  void mix_streams(Tensor out, Tensor x, Tensor mix) override {
    CpuOps::mix_streams(out, x, mix);
    round(out);
  }
  void gate_streams(Tensor out, Tensor key, Tensor query, Tensor value) override {
    CpuOps::gate_streams(out, key, query, value);
    round(out);
  }
  void linear(Tensor out, Tensor x, const Weight& w, Tensor bias) override {
    CpuOps::linear(out, x, w, bias);
    if (std::find(exact_.begin(), exact_.end(), out.row_size()) == exact_.end()) round(out);
  }
  void expert_linear(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias) override {
    CpuOps::expert_linear(out, x, routing, w, bias);
    round(out);
  }
  // linear_glu and expert_linear_glu are one product on the GPU: gate and up are not rounded between.
  void linear_glu(Tensor out, Tensor x, const Weight& w, Tensor bias, Activation activation,
                  float limit) override {
    whole([&] { CpuOps::linear_glu(out, x, w, bias, activation, limit); });
    round(out);
  }
  void expert_linear_glu(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias,
                         Activation activation, float limit) override {
    whole([&] { CpuOps::expert_linear_glu(out, x, routing, w, bias, activation, limit); });
    round(out);
  }
  Routing route(const RouteArgs& args, int k) override {
    const Routing routing = CpuOps::route(args, k);
    const auto n = routing.expert.elements();
    const auto* expert = routing.expert.data<int>();
    const auto* weight = routing.weight.data<float>();
    chosen.push_back({{expert, expert + n}, {weight, weight + n}});
    if (forced != nullptr) take_choices(forced->at(chosen.size() - 1), routing);
    return routing;
  }
  void combine(Tensor out, Tensor y, const Routing& routing, Tensor shared, Tensor gate) override {
    CpuOps::combine(out, y, routing, shared, gate);
    round(out);
  }
  void prepare_qkv(const QkvArgs& args, const Batch& batch) override {
    CpuOps::prepare_qkv(args, batch);
    for (const Tensor& x : {args.q, args.k, args.v}) {
      if (!x.empty()) round(x);
    }
  }
  void attention(const AttentionArgs& args, const Batch& batch) override {
    CpuOps::attention(args, batch);
    round(args.out);
  }
  void causal_conv(const ConvArgs& args, const Batch& batch) override {
    CpuOps::causal_conv(args, batch);
    round(args.out);
  }
  void gated_delta(const GatedDeltaArgs& args, const Batch& batch) override {
    CpuOps::gated_delta(args, batch);
    round(args.out);
  }
  void ssd(const SsdArgs& args, const Batch& batch) override {
    CpuOps::ssd(args, batch);
    round(args.out);
  }

 private:
  // Runs an op made of others as one.
  template <typename F>
  void whole(F&& op) {
    const bool before = round_;
    round_ = false;
    op();
    round_ = before;
  }
  void round(const Tensor& x) const {
    if (!round_) return;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      float* row = x.data<float>() + r * x.stride();
      std::transform(row, row + x.row_size(), row, [](float v) { return to_float(to_bfloat16(v)); });
    }
  }

  bool round_;
  std::vector<std::int64_t> exact_;
};

}  // namespace strata::testing
