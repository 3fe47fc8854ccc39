// gated_delta: the gated delta rule token by token. A piece of work is a block of value columns of one head
// of one sequence.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/recurrent_run.h"
#include "ops/cpu/scalar_math.h"
#include "ops/cpu/worker_scratch.h"

namespace strata {
namespace {

constexpr int kBlock = 64;  // value columns of a piece: K x 64 floats stay in the first-level cache

// Columns [v, v + n) of the state of value head h.
struct DeltaState {
  const GatedDeltaArgs& args;
  std::int64_t h, v, n;
  float* s;      // [K, kBlock]
  float *q, *k;  // [K]

  void load(int slot) {
    for (std::int64_t i = 0; i < args.key_dim; ++i) {
      if (slot < 0) {
        std::fill_n(s + i * kBlock, n, 0.0F);
      } else {
        put(s + i * kBlock, at(slot, i), n);
      }
    }
  }
  void store(int slot) {
    for (std::int64_t i = 0; i < args.key_dim; ++i) put(at(slot, i), s + i * kBlock, n);
  }
  float* at(int slot, std::int64_t i) const {
    return args.state.row<float>(slot) + (h * args.key_dim + i) * args.value_dim + v;
  }
  void replay(int tape, int i) {
    const float* row = args.tape.row<float>(tape) + i * args.tape[2];
    const float* ab = row + args.tape[2] - 2 * static_cast<std::ptrdiff_t>(args.value_heads);
    advance(row, ab[h], ab[args.value_heads + h], nullptr);
  }
  void step(int row) {
    advance(args.qkv.row<float>(row), args.a.row<float>(row)[h], args.b.row<float>(row)[h],
            args.out.row<float>(row) + h * args.value_dim + v);
  }

  static void normalise(float* to, const float* x, std::int64_t size, double scale) {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * x[i];
    const auto factor = static_cast<float>(scale / std::sqrt(sum + 1e-6));
    for (std::int64_t i = 0; i < size; ++i) to[i] = x[i] * factor;
  }

  // One row; out may be null.
  void advance(const float* qkv, float a, float b, float* out) const {
    const std::int64_t key_dim = args.key_dim, keys = args.key_heads * key_dim;
    const std::int64_t key_head = h / (args.value_heads / args.key_heads);
    normalise(q, qkv + key_head * key_dim, key_dim, 1.0 / std::sqrt(static_cast<double>(key_dim)));
    normalise(k, qkv + keys + key_head * key_dim, key_dim, 1.0);
    const float* values = qkv + 2 * keys + h * args.value_dim + v;
    const float decay =
        std::exp(-std::exp(args.a_log.data<float>()[h]) * softplus(a + args.dt_bias.data<float>()[h]));
    const float beta = sigmoid(b);
    for (std::int64_t j = 0; j < n; ++j) {
      float known = 0, o = 0;
      for (std::int64_t i = 0; i < key_dim; ++i) known += s[i * kBlock + j] * decay * k[i];
      const float delta = beta * (values[j] - known);
      for (std::int64_t i = 0; i < key_dim; ++i) {
        float& cell = s[i * kBlock + j];
        cell = cell * decay + k[i] * delta;
        o += cell * q[i];
      }
      if (out != nullptr) out[j] = o;
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
  const std::int64_t blocks = (args.value_dim + kBlock - 1) / kBlock, pieces = args.value_heads * blocks;
  threads_->parallel_for(batch.shape.sequences * pieces, [&](std::int64_t item) {
    const std::int64_t s = item / pieces, h = item % pieces / blocks, v = item % blocks * kBlock;
    float* scratch = worker_scratch(static_cast<std::size_t>(args.key_dim * (kBlock + 2)));
    float* q = scratch + static_cast<std::ptrdiff_t>(args.key_dim) * kBlock;
    DeltaState state{
        args, h, v, std::min<std::int64_t>(kBlock, args.value_dim - v), scratch, q, q + args.key_dim};
    run_recurrence(recurrent_run(batch, static_cast<int>(s), args.state.rows(),
                                 args.tape.empty() ? 0 : args.tape.rows()),
                   state);
  });
  write_tapes(*threads_, batch, args.tape, [&](float* to, int row) {
    to = put(to, args.qkv.row<float>(row), args.qkv.row_size());
    to = put(to, args.a.row<float>(row), args.value_heads);
    put(to, args.b.row<float>(row), args.value_heads);
  });
}

}  // namespace strata
