// causal_conv: depthwise convolution over each sequence. A piece of work is a block of channels of one
// sequence.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/recurrent_run.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/worker_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/causal_conv.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/simd_math-inl.h"

#ifndef STRATA_CAUSAL_CONV_ONCE
#define STRATA_CAUSAL_CONV_ONCE
namespace strata {

constexpr std::int64_t kConvBlock = 128;  // channels of a piece: eight cache lines of each row
constexpr std::int64_t kMaxWidth = 16;    // taps; published models have 4

// The inputs that meet the taps, oldest first, each a row of kConvBlock channels.
struct ConvInputs {
  const float* rows[kMaxWidth];
};

}  // namespace strata
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {

// out[c] = act(bias[c] + sum_j weight[j, c] inputs[j, c]), j ascending; rows of kConvBlock channels.
void conv_row(const ConvInputs& inputs, const float* weight, const float* bias, std::int64_t width, bool silu,
              float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t c = 0; c < kConvBlock; c += lanes) {
    auto sum = hn::Load(d, bias + c);
    for (std::int64_t j = 0; j < width; ++j) {
      sum = hn::MulAdd(hn::Load(d, weight + j * kConvBlock + c), hn::LoadU(d, inputs.rows[j] + c), sum);
    }
    hn::StoreU(silu ? activation_of<Activation::kSilu>(d, sum) : sum, d, out + c);
  }
}

// to[j, c] = from[c, j] of `width` columns, for n channels c. Width 3 and 4 are the state and the weight of
// every published model.
void conv_spread(const float* from, std::int64_t n, std::int64_t width, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  hn::Vec<decltype(d)> v0, v1, v2, v3;
  for (; width == 4 && c + lanes <= n; c += lanes) {
    hn::LoadInterleaved4(d, from + 4 * c, v0, v1, v2, v3);
    hn::Store(v0, d, to + c);
    hn::Store(v1, d, to + kConvBlock + c);
    hn::Store(v2, d, to + 2 * kConvBlock + c);
    hn::Store(v3, d, to + 3 * kConvBlock + c);
  }
  for (; width == 3 && c + lanes <= n; c += lanes) {
    hn::LoadInterleaved3(d, from + 3 * c, v0, v1, v2);
    hn::Store(v0, d, to + c);
    hn::Store(v1, d, to + kConvBlock + c);
    hn::Store(v2, d, to + 2 * kConvBlock + c);
  }
  for (; c < n; ++c) {
    for (std::int64_t j = 0; j < width; ++j) to[j * kConvBlock + c] = from[c * width + j];
  }
}

// to[c, j] = inputs[j, c]
void conv_gather(const ConvInputs& inputs, std::int64_t n, std::int64_t width, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto& rows = inputs.rows;
  std::int64_t c = 0;
  for (; width == 3 && c + lanes <= n; c += lanes) {
    hn::StoreInterleaved3(hn::LoadU(d, rows[0] + c), hn::LoadU(d, rows[1] + c), hn::LoadU(d, rows[2] + c), d,
                          to + 3 * c);
  }
  for (; c < n; ++c) {
    for (std::int64_t j = 0; j < width; ++j) to[c * width + j] = rows[j][c];
  }
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
HWY_EXPORT(conv_row);
HWY_EXPORT(conv_spread);
HWY_EXPORT(conv_gather);
namespace {

// The inputs that the next row's taps meet, for n channels from channel c: in the batch, on the tape or,
// where they came with the state or the block is not full, in scratch.
struct ConvState {
  const ConvArgs& args;
  bool scalar;
  std::int64_t c, n, taps;  // taps = W - 1
  ConvInputs inputs;        // the last `taps` inputs; the current one after them
  float* window;            // [W, kConvBlock]: inputs kept in scratch
  std::int64_t pushed = 0;  // since load
  float* weight;            // [W, kConvBlock]
  float *bias, *out;        // [kConvBlock]

  static std::size_t floats(std::int64_t width) {
    return static_cast<std::size_t>((2 * width + 2) * kConvBlock);
  }
  ConvState(const ConvArgs& a, bool plain, std::int64_t channel, float* scratch)
      : args(a),
        scalar(plain),
        c(channel),
        n(std::min(kConvBlock, a.weight[0] - channel)),
        taps(a.weight[1] - 1),
        window(scratch),
        weight(window + (taps + 1) * kConvBlock),
        bias(weight + (taps + 1) * kConvBlock),
        out(bias + kConvBlock) {
    if (n < kConvBlock) std::fill_n(scratch, (2 * taps + 3) * kConvBlock, 0.0F);  // the unused channels
    HWY_DYNAMIC_DISPATCH(conv_spread)(args.weight.data<float>() + c * (taps + 1), n, taps + 1, weight);
    if (args.bias.empty()) {
      std::fill_n(bias, n, 0.0F);
    } else {
      put(bias, args.bias.data<float>() + c, n);
    }
  }

  void load(int slot) {
    for (std::int64_t j = 0; j < taps; ++j) inputs.rows[j] = window + j * kConvBlock;
    pushed = taps;
    if (slot < 0) {
      std::fill_n(window, taps * kConvBlock, 0.0F);
    } else if (taps > 0) {
      HWY_DYNAMIC_DISPATCH(conv_spread)(args.state.row<float>(slot) + c * taps, n, taps, window);
    }
  }
  void store(int slot) {
    if (taps > 0) HWY_DYNAMIC_DISPATCH(conv_gather)(inputs, n, taps, args.state.row<float>(slot) + c * taps);
  }
  // x becomes the current input; what is W rows old is not needed any more.
  void push(const float* x) {
    if (n < kConvBlock) {
      float* copy = window + pushed % (taps + 1) * kConvBlock;
      put(copy, x, n);
      x = copy;
    }
    ++pushed;
    inputs.rows[taps] = x;
  }
  void shift() { std::copy_n(inputs.rows + 1, taps, inputs.rows); }
  void replay(int tape, int i) {
    push(args.tape.row<float>(tape) + i * args.tape[2] + c);
    shift();
  }
  void expect(int row) const {
    prefetch(args.x.row<float>(row) + c, n);
    prefetch(args.out.row<float>(row) + c, n);
  }
  void step(int row) {
    push(args.x.row<float>(row) + c);
    float* to = args.out.row<float>(row) + c;
    if (scalar) {
      for (std::int64_t i = 0; i < n; ++i) {
        float sum = bias[i];
        for (std::int64_t j = 0; j <= taps; ++j) sum += weight[j * kConvBlock + i] * inputs.rows[j][i];
        to[i] = activation_of(args.activation, sum);
      }
    } else {
      const bool silu = args.activation == Activation::kSilu;
      HWY_DYNAMIC_DISPATCH(conv_row)(inputs, weight, bias, taps + 1, silu, n < kConvBlock ? out : to);
      if (n < kConvBlock) put(to, out, n);
    }
    shift();
  }
};

}  // namespace

void CpuOps::causal_conv(const ConvArgs& args, const Batch& batch) {
  const std::int64_t channels = args.weight[0], width = args.weight[1];
  STRATA_CHECK(width >= 1 && width <= kMaxWidth, "causal_conv: width {}, at most {}", width, kMaxWidth);
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

  const std::int64_t blocks = (channels + kConvBlock - 1) / kConvBlock;
  threads_->parallel_for(batch.shape.sequences * blocks, [&](std::int64_t item) {
    const std::int64_t s = item / blocks, c = item % blocks * kConvBlock;
    ConvState state(args, scalar_, c, worker_scratch(ConvState::floats(width)));
    run_recurrence(recurrent_run(batch, static_cast<int>(s), args.state, args.tape), state);
  });
  write_tapes(*threads_, batch, args.tape,
              [&](float* to, int row) { put(to, args.x.row<float>(row), channels); });
}

}  // namespace strata
#endif  // HWY_ONCE
