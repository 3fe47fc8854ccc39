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

// s [n] = s * decay + in * b; returns s . c. Lanes and two chains along the state: the order depends on n
// alone.
float ssd_step(float* s, const float* b, const float* c, float in, float decay, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, decay), x = hn::Set(d, in);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  const auto step = [&](std::int64_t i, auto& sum) {
    const auto next = hn::MulAdd(x, hn::LoadU(d, b + i), hn::Mul(hn::LoadU(d, s + i), scale));
    hn::StoreU(next, d, s + i);
    sum = hn::MulAdd(next, hn::LoadU(d, c + i), sum);
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    step(i, even);
    step(i + lanes, odd);
  }
  for (; i + lanes <= n; i += lanes) step(i, even);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) {
    s[i] = s[i] * decay + in * b[i];
    sum += s[i] * c[i];
  }
  return sum;
}

// The channels [0, n) of one row: out may be null; skip is d of the formula.
void ssd_rows(float* s, const float* x, const float* b, const float* c, float dt, float decay, float skip,
              std::int64_t n, std::int64_t states, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float y = ssd_step(s + i * states, b, c, dt * x[i], decay, states);
    if (out != nullptr) out[i] = y + skip * x[i];
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
