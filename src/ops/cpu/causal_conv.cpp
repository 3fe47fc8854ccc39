// causal_conv: depthwise convolution over each sequence. A piece of work is a block of channels of one
// sequence.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/recurrent_run.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/worker_scratch.h"

namespace strata {
namespace {

constexpr std::int64_t kBlock = 128;  // channels of a piece: two to eight cache lines of each row

// The last W-1 inputs of n channels from channel c, oldest first, as rows of kBlock.
struct ConvState {
  const ConvArgs& args;
  std::int64_t c, n, taps;  // taps = W - 1
  float* window;            // [taps, kBlock]

  void load(int slot) {
    for (std::int64_t j = 0; j < taps; ++j) {
      for (std::int64_t i = 0; i < n; ++i) {
        window[j * kBlock + i] = slot < 0 ? 0.0F : args.state.row<float>(slot)[(c + i) * taps + j];
      }
    }
  }
  void store(int slot) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < taps; ++j)
        args.state.row<float>(slot)[(c + i) * taps + j] = window[j * kBlock + i];
    }
  }
  void push(const float* x) {
    if (taps == 0) return;
    std::copy(window + kBlock, window + taps * kBlock, window);
    std::copy(x, x + n, window + (taps - 1) * kBlock);
  }
  void replay(int tape, int i) { push(args.tape.row<float>(tape) + i * args.tape[2] + c); }
  void step(int row) {
    const float* x = args.x.row<float>(row) + c;
    float* out = args.out.row<float>(row) + c;
    const auto* weight = args.weight.data<float>() + c * (taps + 1);
    const float* bias = vector_or_null(args.bias);
    for (std::int64_t i = 0; i < n; ++i) {
      float sum = bias == nullptr ? 0.0F : bias[c + i];
      for (std::int64_t j = 0; j < taps; ++j) sum += weight[i * (taps + 1) + j] * window[j * kBlock + i];
      sum += weight[i * (taps + 1) + taps] * x[i];
      out[i] = activation_of(args.activation, sum);
    }
    push(x);
  }
};

}  // namespace

void CpuOps::causal_conv(const ConvArgs& args, const Batch& batch) {
  const std::int64_t channels = args.weight[0], width = args.weight[1];
  check_matrix("causal_conv", "x", args.x, batch.shape.rows, channels);
  check_matrix("causal_conv", "out", args.out, batch.shape.rows, channels);
  check_vector("causal_conv", "weight", args.weight, channels * width);
  if (!args.bias.empty()) check_vector("causal_conv", "bias", args.bias, channels);
  check_matrix("causal_conv", "state", args.state, args.state.rows(), channels * (width - 1));
  STRATA_CHECK(args.activation == Activation::kSilu || args.activation == Activation::kNone,
               "causal_conv: activation {}, expected {} or {}", static_cast<int>(args.activation),
               static_cast<int>(Activation::kSilu), static_cast<int>(Activation::kNone));
  STRATA_CHECK(args.out.raw() != args.x.raw(), "causal_conv: out and x are both at {}",
               static_cast<const void*>(args.x.raw()));
  if (!args.tape.empty())
    check_matrix("causal_conv", "tape", args.tape, args.tape.rows(), kTapeRows * channels);

  const std::int64_t blocks = (channels + kBlock - 1) / kBlock;
  threads_->parallel_for(batch.shape.sequences * blocks, [&](std::int64_t item) {
    const std::int64_t s = item / blocks, c = item % blocks * kBlock;
    ConvState state{args, c, std::min(kBlock, channels - c), width - 1,
                    worker_scratch(static_cast<std::size_t>(width * kBlock))};
    run_recurrence(recurrent_run(batch, static_cast<int>(s), args.state.rows(),
                                 args.tape.empty() ? 0 : args.tape.rows()),
                   state);
  });
  write_tapes(*threads_, batch, args.tape,
              [&](float* to, int row) { put(to, args.x.row<float>(row), channels); });
}

}  // namespace strata
