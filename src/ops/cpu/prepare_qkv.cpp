// prepare_qkv: per-head RMS norms, rotary embedding, and the new keys and values into their pages.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kv_convert.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/simd_rows.h"

namespace strata {
namespace {

void norm_head(bool scalar, float* x, const float* weight, std::int64_t n, float eps) {
  if (!scalar) {
    const float mean = simd::sum_of_squares(x, n) / static_cast<float>(n);
    simd::scale_row(x, x, 1.0F / std::sqrt(mean + eps), weight, n);
    return;
  }
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const auto factor = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + eps));
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * factor * weight[i];
}

// The position stream of channel pair i: blocks of mrope_section, or THWTHW... as in Qwen3-VL (its modelling
// code in transformers, apply_interleaved_mrope).
int stream_of(const Rope& rope, int i) {
  const auto& section = rope.mrope_section;
  if (section[0] + section[1] + section[2] == 0) return 0;
  if (rope.mrope_interleaved) {
    const int stream = i % 3;
    return stream != 0 && i < 3 * section[static_cast<std::size_t>(stream)] ? stream : 0;
  }
  if (i < section[0]) return 0;
  return i < section[0] + section[1] ? 1 : 2;
}

// Cosines and sines of one row: [n] each. Angles in f32, as the reference implementations form them.
void angles(const Rope& rope, const Tensor& positions, std::int64_t t, float* cosines, float* sines) {
  const auto* inv_freq = rope.inv_freq.data<float>();
  const bool streams = positions.shape().rank() == 2;
  for (int i = 0; i < rope.inv_freq.elements(); ++i) {
    const auto position =
        streams ? positions.row<std::int32_t>(stream_of(rope, i))[t] : positions.data<std::int32_t>()[t];
    const float angle = static_cast<float>(position) * inv_freq[i];
    cosines[i] = std::cos(angle) * rope.scale;
    sines[i] = std::sin(angle) * rope.scale;
  }
}

void rotate(bool scalar, float* x, const float* cosines, const float* sines, int n, bool interleaved) {
  if (!scalar && !interleaved) return simd::rotate_row(x, x + n, cosines, sines, n);
  for (int i = 0; i < n; ++i) {
    float& a = x[interleaved ? 2 * i : i];
    float& b = x[interleaved ? 2 * i + 1 : i + n];
    const float x0 = a, x1 = b;
    a = x0 * cosines[i] - x1 * sines[i];
    b = x1 * cosines[i] + x0 * sines[i];
  }
}

// What the queries of row t are multiplied by, by its (first) position.
float query_factor(const Rope& rope, const Tensor& positions, std::int64_t t) {
  const int spans = positions.data<std::int32_t>()[t] / rope.query_span;
  return 1 + rope.query_beta * std::log(1 + static_cast<float>(spans));
}

void check(const QkvArgs& args, const Batch& batch) {
  const Tensor &q = args.q, &k = args.k, &v = args.v;
  const std::int64_t rows = batch.shape.rows;
  for (const auto& [what, x, norm] :
       {std::tuple{"q", q, args.q_norm}, {"k", k, args.k_norm}, {"v", v, args.v_norm}}) {
    if (x.empty()) continue;
    STRATA_CHECK(x.shape().rank() == 3, "prepare_qkv: {} has rank {}, expected 3", what, x.shape().rank());
    check_matrix("prepare_qkv", what, x, rows, x[1] * x[2]);
    if (!norm.empty()) check_vector("prepare_qkv", std::string(what) + "_norm", norm, x[2]);
    if (args.rope != nullptr && x.raw() != v.raw()) {
      STRATA_CHECK(args.rope->offset + 2 * args.rope->inv_freq.elements() <= x[2],
                   "prepare_qkv: {} rotated channels from {} on, {} has {}", 2 * args.rope->inv_freq.elements(),
                   args.rope->offset, what, x[2]);
    }
  }
  for (const auto& [what, x, pages] : {std::tuple{"k", k, args.kv.k}, {"v", v, args.kv.v}}) {
    if (pages.empty() || x.empty()) continue;
    check_kv_dtype(pages.dtype());
    check_extent("prepare_qkv", std::string(what) + " heads", x[1], pages[2]);
    check_extent("prepare_qkv", std::string(what) + " head_dim", x[2], pages[3]);
    check_extent("prepare_qkv", "page tokens", pages[1], kPageTokens);
  }
  if (args.rope != nullptr) {
    check_extent("prepare_qkv", "positions", batch.positions[-1], rows);
  }
}

}  // namespace

void CpuOps::prepare_qkv(const QkvArgs& args, const Batch& batch) {
  check(args, batch);
  const Scratch scratch(arena());
  const int n = args.rope != nullptr ? static_cast<int>(args.rope->inv_freq.elements()) : 0;
  const Tensor table = n > 0 ? make({batch.shape.rows, 2 * n}, DType::kF32) : Tensor();
  const auto* slots = batch.kv_slots.data<std::int32_t>();
  const auto norm = [&](const Tensor& x, const Tensor& weight, std::int64_t t) {
    if (x.empty() || weight.empty()) return;
    for (std::int64_t h = 0; h < x[1]; ++h)
      norm_head(scalar_, x.row<float>(t) + h * x[2], weight.data<float>(), x[2], args.eps);
  };
  const auto turn = [&](const Tensor& x, std::int64_t t) {
    if (x.empty() || n == 0) return;
    const float* row = table.row<float>(t);
    for (std::int64_t h = 0; h < x[1]; ++h)
      rotate(scalar_, x.row<float>(t) + h * x[2] + args.rope->offset, row, row + n, n, args.rope->interleaved);
  };
  const auto stretch = [&](const Tensor& q, std::int64_t t) {
    if (q.empty() || args.rope == nullptr || args.rope->query_span == 0) return;
    const float factor = query_factor(*args.rope, batch.positions, t);
    float* row = q.row<float>(t);
    for (std::int64_t i = 0; i < q.row_size(); ++i) row[i] *= factor;
  };
  const auto store = [&](const Tensor& pages, const Tensor& x, std::int64_t t) {
    if (pages.empty() || x.empty() || slots[t] < 0) return;
    store_kv(pages.dtype(), kv_entry(pages, slots[t]), 0, x.row<float>(t), x[1] * x[2]);
  };
  const std::int64_t elements =
      (args.q.empty() ? 0 : args.q.row_size()) + (args.k.empty() ? 0 : args.k.row_size());
  for_row_blocks(*threads_, batch.shape.rows, elements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (n > 0) angles(*args.rope, batch.positions, t, table.row<float>(t), table.row<float>(t) + n);
      norm(args.q, args.q_norm, t);
      turn(args.q, t);
      stretch(args.q, t);
      norm(args.k, args.k_norm, t);
      turn(args.k, t);
      norm(args.v, args.v_norm, t);
      store(args.kv.k, args.k, t);
      store(args.kv.v, args.v, t);
    }
  });
}

}  // namespace strata
