// gated_delta: the gated delta rule token by token. A piece of work is a block of value columns of one head
// of one sequence.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/recurrent_run.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/simd_rows.h"
#include "ops/cpu/worker_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gated_delta.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#ifndef STRATA_GATED_DELTA_ONCE
#define STRATA_GATED_DELTA_ONCE
namespace strata {

constexpr int kDeltaBlock = 64;  // value columns of a piece: K x 64 floats stay in the first-level cache

struct DeltaStep {
  float* s;            // [K, kDeltaBlock]
  const float *q, *k;  // [K], normalised
  const float* v;      // [kDeltaBlock]
  float* o;            // [kDeltaBlock]
  std::int64_t key_dim;
  int columns;  // of the block that are in use
  float decay, beta;
};

}  // namespace strata
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lanes along the value columns, which never meet: the order of every sum is that of the keys. Two chains
// (even and odd keys) hide the latency of the sum.
void delta_step(const DeltaStep& step) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  constexpr int kVectors = 4;
  const V decay = hn::Set(d, step.decay), beta = hn::Set(d, step.beta);
  for (int c = 0; c < step.columns; c += kVectors * lanes) {
    float* s = step.s + c;
    V even[kVectors], odd[kVectors];
    for (int j = 0; j < kVectors; ++j) even[j] = odd[j] = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + 2 <= step.key_dim; i += 2) {
      const V k0 = hn::Set(d, step.k[i]), k1 = hn::Set(d, step.k[i + 1]);
      for (int j = 0; j < kVectors; ++j) {
        even[j] = hn::MulAdd(hn::Load(d, s + i * kDeltaBlock + j * lanes), k0, even[j]);
        odd[j] = hn::MulAdd(hn::Load(d, s + (i + 1) * kDeltaBlock + j * lanes), k1, odd[j]);
      }
    }
    for (; i < step.key_dim; ++i) {
      const V k0 = hn::Set(d, step.k[i]);
      for (int j = 0; j < kVectors; ++j)
        even[j] = hn::MulAdd(hn::Load(d, s + i * kDeltaBlock + j * lanes), k0, even[j]);
    }
    V delta[kVectors], sum[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      const V known = hn::Mul(decay, hn::Add(even[j], odd[j]));
      delta[j] = hn::Mul(beta, hn::Sub(hn::Load(d, step.v + c + j * lanes), known));
      sum[j] = hn::Zero(d);
    }
    for (i = 0; i < step.key_dim; ++i) {
      const V k = hn::Set(d, step.k[i]), q = hn::Set(d, step.q[i]);
      for (int j = 0; j < kVectors; ++j) {
        float* cell = s + i * kDeltaBlock + j * lanes;
        const V next = hn::MulAdd(k, delta[j], hn::Mul(hn::Load(d, cell), decay));
        hn::Store(next, d, cell);
        sum[j] = hn::MulAdd(next, q, sum[j]);
      }
    }
    for (int j = 0; j < kVectors; ++j) hn::Store(sum[j], d, step.o + c + j * lanes);
  }
}

}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
HWY_EXPORT(delta_step);
namespace {

// Columns [v, v + n) of the state of value head h.
struct DeltaState {
  const GatedDeltaArgs& args;
  bool scalar;
  std::int64_t h, v, n;
  float* s;           // [K, kDeltaBlock]
  float *values, *o;  // [kDeltaBlock]
  float *q, *k;       // [K]

  static std::size_t floats(int key_dim) {
    return static_cast<std::size_t>((key_dim + 2) * kDeltaBlock + 2 * key_dim);
  }
  DeltaState(const GatedDeltaArgs& a, bool plain, std::int64_t head, std::int64_t column, float* scratch)
      : args(a),
        scalar(plain),
        h(head),
        v(column),
        n(std::min<std::int64_t>(kDeltaBlock, a.value_dim - column)),
        s(scratch),
        values(s + static_cast<std::ptrdiff_t>(a.key_dim) * kDeltaBlock),
        o(values + kDeltaBlock),
        q(o + kDeltaBlock),
        k(q + a.key_dim) {
    if (n < kDeltaBlock) std::fill_n(s, (a.key_dim + 1) * kDeltaBlock, 0.0F);  // the unused columns
  }

  void load(int slot) {
    for (std::int64_t i = 0; i < args.key_dim; ++i) {
      if (slot < 0) {
        std::fill_n(s + i * kDeltaBlock, n, 0.0F);
      } else {
        put(s + i * kDeltaBlock, at(slot, i), n);
      }
    }
  }
  void store(int slot) {
    for (std::int64_t i = 0; i < args.key_dim; ++i) put(at(slot, i), s + i * kDeltaBlock, n);
  }
  float* at(int slot, std::int64_t i) const {
    return args.state.row<float>(slot) + (h * args.key_dim + i) * args.value_dim + v;
  }
  void replay(int tape, int i) {
    const float* row = args.tape.row<float>(tape) + i * args.tape[2];
    const float* ab = row + args.tape[2] - 2 * static_cast<std::ptrdiff_t>(args.value_heads);
    advance(row, ab[h], ab[args.value_heads + h], nullptr);
  }
  void expect(int row) const {
    const std::int64_t keys = args.key_heads * args.key_dim;
    const float* query = args.qkv.row<float>(row) + h / (args.value_heads / args.key_heads) * args.key_dim;
    prefetch(query, args.key_dim);
    prefetch(query + keys, args.key_dim);
    prefetch(args.qkv.row<float>(row) + 2 * keys + h * args.value_dim + v, n);
    prefetch(args.a.row<float>(row) + h, 1);
    prefetch(args.b.row<float>(row) + h, 1);
    prefetch(args.out.row<float>(row) + h * args.value_dim + v, n);
  }
  void step(int row) {
    advance(args.qkv.row<float>(row), args.a.row<float>(row)[h], args.b.row<float>(row)[h],
            args.out.row<float>(row) + h * args.value_dim + v);
  }

  // to = x / sqrt(sum x^2 + 1e-6) * factor
  void normalise(float* to, const float* x, float factor) const {
    if (scalar) {
      double sum = 0;
      for (int i = 0; i < args.key_dim; ++i) sum += static_cast<double>(x[i]) * x[i];
      factor /= static_cast<float>(std::sqrt(sum + 1e-6));
      for (int i = 0; i < args.key_dim; ++i) to[i] = x[i] * factor;
    } else {
      factor /= std::sqrt(simd::sum_of_squares(x, args.key_dim) + 1e-6F);
      simd::scale_row(to, x, factor, nullptr, args.key_dim);
    }
  }

  // One row; out may be null.
  void advance(const float* qkv, float a, float b, float* out) const {
    const std::int64_t key_dim = args.key_dim, keys = args.key_heads * key_dim;
    const std::int64_t key_head = h / (args.value_heads / args.key_heads);
    normalise(q, qkv + key_head * key_dim, 1.0F / std::sqrt(static_cast<float>(key_dim)));
    normalise(k, qkv + keys + key_head * key_dim, 1.0F);
    put(values, qkv + 2 * keys + h * args.value_dim + v, n);
    const float decay =
        std::exp(-std::exp(args.a_log.data<float>()[h]) * softplus(a + args.dt_bias.data<float>()[h]));
    const float beta = sigmoid(b);
    if (!scalar) {
      HWY_DYNAMIC_DISPATCH(delta_step)({s, q, k, values, o, key_dim, static_cast<int>(n), decay, beta});
      if (out != nullptr) put(out, o, n);
      return;
    }
    for (std::int64_t j = 0; j < n; ++j) {
      float known = 0, sum = 0;
      for (std::int64_t i = 0; i < key_dim; ++i) known += s[i * kDeltaBlock + j] * decay * k[i];
      const float delta = beta * (values[j] - known);
      for (std::int64_t i = 0; i < key_dim; ++i) {
        float& cell = s[i * kDeltaBlock + j];
        cell = cell * decay + k[i] * delta;
        sum += cell * q[i];
      }
      if (out != nullptr) out[j] = sum;
    }
  }
};

void check(const GatedDeltaArgs& args, const Batch& batch) {
  const std::int64_t rows = batch.shape.rows, keys = args.key_heads * args.key_dim, heads = args.value_heads;
  const std::int64_t width = 2 * keys + heads * args.value_dim;
  STRATA_CHECK(args.key_heads > 0 && heads % args.key_heads == 0,
               "gated_delta: {} value heads over {} key heads", heads, args.key_heads);
  check_matrix("gated_delta", "qkv", args.qkv, rows, width);
  check_matrix("gated_delta", "a", args.a, rows, heads);
  check_matrix("gated_delta", "b", args.b, rows, heads);
  check_matrix("gated_delta", "out", args.out, rows, heads * args.value_dim);
  check_vector("gated_delta", "a_log", args.a_log, heads);
  check_vector("gated_delta", "dt_bias", args.dt_bias, heads);
  check_matrix("gated_delta", "state", args.state, args.state.rows(), heads * args.key_dim * args.value_dim);
  if (!args.tape.empty()) {
    check_matrix("gated_delta", "tape", args.tape, args.tape.rows(), kTapeRows * (width + 2 * heads));
  }
}

}  // namespace

void CpuOps::gated_delta(const GatedDeltaArgs& args, const Batch& batch) {
  check(args, batch);
  const std::int64_t blocks = (args.value_dim + kDeltaBlock - 1) / kDeltaBlock,
                     pieces = args.value_heads * blocks;
  threads_->parallel_for(batch.shape.sequences * pieces, [&](std::int64_t item) {
    const std::int64_t s = item / pieces, h = item % pieces / blocks, v = item % blocks * kDeltaBlock;
    DeltaState state(args, scalar_, h, v, worker_scratch(DeltaState::floats(args.key_dim)));
    run_recurrence(recurrent_run(batch, static_cast<int>(s), args.state, args.tape), state);
  });
  write_tapes(*threads_, batch, args.tape, [&](float* to, int row) {
    to = put(to, args.qkv.row<float>(row), args.qkv.row_size());
    to = put(to, args.a.row<float>(row), args.value_heads);
    put(to, args.b.row<float>(row), args.value_heads);
  });
}

}  // namespace strata
#endif  // HWY_ONCE
