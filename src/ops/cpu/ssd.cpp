// ssd: Mamba-2's state space recurrence token by token. A piece of work is a block of channels of one head of
// one sequence.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/recurrent_run.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/worker_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/ssd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kRows channels of a state s [kRows, n]: s = s * decay + in[r] * b; y[r] = s . c. One chain along the state
// for each channel: the order depends on n alone.
template <int kRows>
HWY_INLINE void ssd_channels(float* s, const float* b, const float* c, const float* in, float decay,
                             std::int64_t n, float* y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V scale = hn::Set(d, decay);
  V x[kRows], sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = hn::Set(d, in[r]);
    sum[r] = hn::Zero(d);
  }
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V vb = hn::LoadU(d, b + i), vc = hn::LoadU(d, c + i);
    for (int r = 0; r < kRows; ++r) {
      float* cell = s + r * n + i;
      const V next = hn::MulAdd(x[r], vb, hn::Mul(hn::LoadU(d, cell), scale));
      hn::StoreU(next, d, cell);
      sum[r] = hn::MulAdd(next, vc, sum[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    y[r] = hn::GetLane(hn::SumOfLanes(d, sum[r]));
    for (std::int64_t j = i; j < n; ++j) {
      float& cell = s[r * n + j];
      cell = cell * decay + in[r] * b[j];
      y[r] += cell * c[j];
    }
  }
}

// The channels [0, n) of one row: out may be null; skip is d of the formula.
void ssd_rows(float* s, const float* x, const float* b, const float* c, float dt, float decay, float skip,
              std::int64_t n, std::int64_t states, float* out) {
  constexpr int kRows = 4;
  float in[kRows], y[kRows];
  for (std::int64_t i = 0; i < n; i += kRows) {
    const auto rows = static_cast<int>(std::min<std::int64_t>(kRows, n - i));
    for (int r = 0; r < rows; ++r) in[r] = dt * x[i + r];
    if (rows == kRows) {
      ssd_channels<kRows>(s + i * states, b, c, in, decay, states, y);
    } else {
      for (int r = 0; r < rows; ++r)
        ssd_channels<1>(s + (i + r) * states, b, c, in + r, decay, states, y + r);
    }
    if (out == nullptr) continue;
    for (int r = 0; r < rows; ++r) out[i + r] = y[r] + skip * x[i + r];
  }
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
HWY_EXPORT(ssd_rows);
namespace {

constexpr std::int64_t kBlock = 32;  // channels of a piece: 32 x N floats stay in the first-level cache

// Channels [p, p + n) of the state of head h.
struct SsdState {
  const SsdArgs& args;
  bool scalar;
  std::int64_t h, p, n;
  float* s;  // [n, N]

  float* at(int slot) const { return args.state.row<float>(slot) + (h * args.head_dim + p) * args.state_dim; }
  void load(int slot) {
    if (slot < 0) {
      std::fill_n(s, n * args.state_dim, 0.0F);
    } else {
      put(s, at(slot), n * args.state_dim);
    }
  }
  void store(int slot) { put(at(slot), s, n * args.state_dim); }
  void replay(int tape, int i) {
    const float* row = args.tape.row<float>(tape) + i * args.tape[2];
    advance(row, row[args.tape[2] - args.heads + h], nullptr);
  }
  void expect(int row) const {
    const float* xbc = args.xbc.row<float>(row);
    const float* b = xbc + args.heads * args.head_dim + h / (args.heads / args.groups) * args.state_dim;
    prefetch(xbc + h * args.head_dim + p, n);
    prefetch(b, args.state_dim);
    prefetch(b + args.groups * args.state_dim, args.state_dim);
    prefetch(args.dt.row<float>(row) + h, 1);
    prefetch(args.out.row<float>(row) + h * args.head_dim + p, n);
  }
  void step(int row) {
    advance(args.xbc.row<float>(row), args.dt.row<float>(row)[h],
            args.out.row<float>(row) + h * args.head_dim + p);
  }

  // One row; out may be null.
  void advance(const float* xbc, float dt, float* out) const {
    const std::int64_t states = args.state_dim, group = h / (args.heads / args.groups);
    const float* x = xbc + h * args.head_dim + p;
    const float* b = xbc + args.heads * args.head_dim + group * states;
    const float* c = b + args.groups * states;
    dt = std::max(softplus(dt + args.dt_bias.data<float>()[h]), args.dt_min);
    if (args.dt_max > 0) dt = std::min(dt, args.dt_max);
    const float decay = std::exp(-std::exp(args.a_log.data<float>()[h]) * dt);
    const float skip = args.d.data<float>()[h];
    if (!scalar) {
      HWY_DYNAMIC_DISPATCH(ssd_rows)(s, x, b, c, dt, decay, skip, n, states, out);
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const float in = dt * x[i];
      float y = 0;
      for (std::int64_t j = 0; j < states; ++j) {
        float& cell = s[i * states + j];
        cell = cell * decay + in * b[j];
        y += cell * c[j];
      }
      if (out != nullptr) out[i] = y + skip * x[i];
    }
  }
};

void check(const SsdArgs& args, const Batch& batch) {
  const std::int64_t rows = batch.shape.rows, heads = args.heads;
  const std::int64_t width = heads * args.head_dim + 2 * args.groups * args.state_dim;
  STRATA_CHECK(args.groups > 0 && heads % args.groups == 0, "ssd: {} heads over {} groups", heads,
               args.groups);
  check_matrix("ssd", "xbc", args.xbc, rows, width);
  check_matrix("ssd", "dt", args.dt, rows, heads);
  check_matrix("ssd", "out", args.out, rows, heads * args.head_dim);
  check_vector("ssd", "a_log", args.a_log, heads);
  check_vector("ssd", "dt_bias", args.dt_bias, heads);
  check_vector("ssd", "d", args.d, heads);
  check_matrix("ssd", "state", args.state, args.state.rows(), heads * args.head_dim * args.state_dim);
  if (!args.tape.empty())
    check_matrix("ssd", "tape", args.tape, args.tape.rows(), kTapeRows * (width + heads));
}

}  // namespace

void CpuOps::ssd(const SsdArgs& args, const Batch& batch) {
  check(args, batch);
  const std::int64_t blocks = (args.head_dim + kBlock - 1) / kBlock, pieces = args.heads * blocks;
  threads_->parallel_for(batch.shape.sequences * pieces, [&](std::int64_t item) {
    const std::int64_t s = item / pieces, h = item % pieces / blocks, p = item % blocks * kBlock;
    SsdState state{args,
                   scalar_,
                   h,
                   p,
                   std::min(kBlock, args.head_dim - p),
                   worker_scratch(static_cast<std::size_t>(kBlock * args.state_dim))};
    run_recurrence(recurrent_run(batch, static_cast<int>(s), args.state, args.tape), state);
  });
  write_tapes(*threads_, batch, args.tape, [&](float* to, int row) {
    to = put(to, args.xbc.row<float>(row), args.xbc.row_size());
    put(to, args.dt.row<float>(row), args.heads);
  });
}

}  // namespace strata
#endif  // HWY_ONCE
