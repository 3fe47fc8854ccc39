// TimedOps: the CPU backend with a clock around every op of a step, for `strata bench --ops`.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>

#include "ops/cpu/cpu_ops.h"

namespace strata {

// What an op took since the map was last cleared.
struct OpTime {
  std::int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;       // of matrices read
  double operations = 0;  // additions and multiplications of products
};

using OpTimes = std::map<std::string_view, OpTime>;

// Ops that call others count as one. Driven by one thread, as any backend; `times` must outlive it.
class TimedOps final : public CpuOps {
 public:
  TimedOps(const CpuOptions& options, OpTimes& times) : CpuOps(options), times_(times) {}

#define TIMED(name, parameters, arguments, ...)                 \
  void name parameters override {                               \
    const Timer timer(*this, #name __VA_OPT__(, ) __VA_ARGS__); \
    CpuOps::name arguments;                                     \
  }
  TIMED(embed, (Tensor out, Tensor tokens, const Weight& table, float scale), (out, tokens, table, scale))
  TIMED(gather_rows, (Tensor out, Tensor x, Tensor rows), (out, x, rows))
  TIMED(save_rows, (Tensor x, Tensor saves, Tensor state), (x, saves, state))
  TIMED(concat, (Tensor out, Tensor a, Tensor b), (out, a, b))
  TIMED(rms_norm, (Tensor out, Tensor x, Tensor weight, float eps), (out, x, weight, eps))
  TIMED(add_rms_norm, (Tensor out, Tensor x, Tensor delta, float scale, Tensor weight, float eps),
        (out, x, delta, scale, weight, eps))
  TIMED(gated_norm, (const GatedNormArgs& args), (args))
  TIMED(add, (Tensor x, Tensor delta, float scale), (x, delta, scale))
  TIMED(multiply, (Tensor x, Tensor y), (x, y))
  TIMED(scale, (Tensor x, float factor, float softcap), (x, factor, softcap))
  TIMED(activate, (Tensor x, Activation activation), (x, activation))
  TIMED(glu, (Tensor out, Tensor gate_up, Activation activation, float limit),
        (out, gate_up, activation, limit))
  TIMED(linear, (Tensor out, Tensor x, const Weight& w, Tensor bias), (out, x, w, bias),
        product(out.rows(), w))
  TIMED(expert_linear, (Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias),
        (out, x, routing, w, bias), product(out.rows(), w))
  TIMED(lora, (Tensor out, Tensor x, const LoraTable& table, Tensor adapters), (out, x, table, adapters))
  TIMED(expert_lora, (Tensor out, Tensor x, const Routing& routing, const LoraTable& table, Tensor adapters),
        (out, x, routing, table, adapters))
  TIMED(mix_streams, (Tensor out, Tensor x, Tensor mix), (out, x, mix))
  TIMED(inject_streams, (Tensor x, Tensor delta, Tensor weight), (x, delta, weight))
  TIMED(gate_streams, (Tensor out, Tensor key, Tensor query, Tensor value), (out, key, query, value))
  TIMED(store_index, (const IndexArgs& args, const Batch& batch), (args, batch))
  TIMED(select_blocks, (const SelectArgs& args, const Batch& batch), (args, batch))
  TIMED(ngram_rows, (const NgramArgs& args, const Batch& batch), (args, batch))
  TIMED(combine, (Tensor out, Tensor y, const Routing& routing, Tensor shared, Tensor gate),
        (out, y, routing, shared, gate))
  TIMED(prepare_qkv, (const QkvArgs& args, const Batch& batch), (args, batch))
  TIMED(attention, (const AttentionArgs& args, const Batch& batch), (args, batch))
  TIMED(causal_conv, (const ConvArgs& args, const Batch& batch), (args, batch))
  TIMED(gated_delta, (const GatedDeltaArgs& args, const Batch& batch), (args, batch))
  TIMED(ssd, (const SsdArgs& args, const Batch& batch), (args, batch))
#undef TIMED

  Routing route(const RouteArgs& args, int k) override {
    const Timer timer(*this, "route");
    return CpuOps::route(args, k);
  }

 private:
  using Clock = std::chrono::steady_clock;

  class Timer {
   public:
    Timer(TimedOps& ops, std::string_view name, double operations = 0)
        : ops_(ops),
          name_(name),
          operations_(operations),
          read_(ops.weight_bytes_read()),
          start_(Clock::now()) {
      ++ops_.depth_;
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    ~Timer() {
      if (--ops_.depth_ > 0) return;
      OpTime& t = ops_.times_[name_];
      ++t.calls;
      t.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
      t.bytes += static_cast<double>(ops_.weight_bytes_read() - read_);
      t.operations += operations_;
    }

   private:
    TimedOps& ops_;
    std::string_view name_;
    double operations_;
    std::uint64_t read_;
    Clock::time_point start_;
  };

  static double product(std::int64_t rows, const Weight& w) {
    return 2.0 * static_cast<double>(rows * w.outputs() * w.inputs());
  }

  OpTimes& times_;
  int depth_ = 0;  // of ops within ops
};

}  // namespace strata
