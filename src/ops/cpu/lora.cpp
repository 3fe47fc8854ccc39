// lora, expert_lora: what adapters add to a product, the rows of each adapter (and expert) together, in two
// rounds of pieces over all adapters of the batch: A x, then B of it.
#include <algorithm>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/products.h"
#include "ops/cpu/worker_scratch.h"

namespace strata {
namespace {

using cpu::kBlockRows;
using cpu::kGroupPanels;
using cpu::MatrixView;

constexpr std::int64_t kGroupOutputs = kGroupPanels * cpu::kPanelOutputs;

// At most kBlockRows entries, consecutive in their order, that meet the same matrices.
struct Unit {
  const LoraPair* pair = nullptr;
  std::int64_t expert = 0;
  std::int64_t first = 0;  // entry
  int count = 0;
};

// A piece of the second round: some panels of one part's B.
struct Expansion {
  std::int64_t unit = 0;
  int part = 0;
  std::int64_t panel = 0;
};

// Panels from `panel` on, as a matrix of its own.
MatrixView from_panel(MatrixView m, std::int64_t panel) {
  m.weights += static_cast<std::size_t>(panel) * cpu::packed_panel_bytes(m.dtype, m.inputs);
  m.outputs = std::min(m.outputs - panel * cpu::kPanelOutputs, kGroupOutputs);
  return m;
}

void check_adapters(const Tensor& adapters, std::int64_t rows, const LoraTable& table) {
  check_extent("lora", "adapters", adapters.elements(), rows);
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::int32_t slot = adapters.data<std::int32_t>()[t];
    STRATA_CHECK(slot < static_cast<std::int32_t>(table.pairs.size()), "lora: adapter {} of {} slots", slot,
                 table.pairs.size());
  }
}

void check_pair(const LoraPair& pair, int most_lines, std::int64_t outputs, std::int64_t inputs) {
  STRATA_CHECK(pair.a.dtype == DType::kF32, "lora: A must be f32, is {}", name(pair.a.dtype));
  if (inputs > 0) check_extent("lora", "inputs of A", pair.a.inputs(), inputs);
  const std::int64_t lines = inputs > 0 ? pair.a.outputs() : pair.a.inputs();
  STRATA_CHECK(lines <= most_lines, "lora: {} lines, at most {}", lines, most_lines);
  for (const LoraPart& part : pair.parts) {
    STRATA_CHECK(part.b.dtype == DType::kF32, "lora: B must be f32, is {}", name(part.b.dtype));
    STRATA_CHECK(part.line >= 0 && part.line + part.b.inputs() <= lines, "lora: lines [{}, +{}) of {}",
                 part.line, part.b.inputs(), lines);
    STRATA_CHECK(part.output >= 0 && part.output + part.b.outputs() <= outputs,
                 "lora: outputs [{}, +{}) of {}", part.output, part.b.outputs(), outputs);
  }
}

}  // namespace

// Entry i of its order is row entries[i] of out; the units cover the order.
struct CpuOps::LoraWork {
  Tensor out, x;
  int most_lines = 0;
  std::int64_t divisor = 1;  // entry / divisor is the row of x
  std::int32_t* entries = nullptr;
  std::int64_t count = 0;
  Unit* units = nullptr;
  std::int64_t unit_count = 0;
};

void CpuOps::run_lora(const LoraWork& work) {
  if (work.count == 0) return;
  const bool tokens = work.x.dtype() == DType::kI32;
  const std::int64_t n = work.count;
  std::int64_t lines = 0, shrinks = 0, expansions = 0;
  for (std::int64_t u = 0; u < work.unit_count; ++u) {
    const LoraPair& pair = *work.units[u].pair;
    check_pair(pair, work.most_lines, work.out.row_size(), tokens ? 0 : work.x.row_size());
    lines = std::max(lines, tokens ? pair.a.inputs() : pair.a.outputs());
    shrinks += tokens ? 1 : (cpu::panels_of(pair.a.outputs()) + kGroupPanels - 1) / kGroupPanels;
    for (const LoraPart& part : pair.parts)
      expansions += (part.b.outputs() + kGroupOutputs - 1) / kGroupOutputs;
  }
  const Tensor low = make({n, lines}, DType::kF32);  // A x of every entry
  const auto** xs = reinterpret_cast<const float**>(make({n}, DType::kI64).raw());
  auto** lows = reinterpret_cast<float**>(make({n}, DType::kI64).raw());
  for (std::int64_t i = 0; i < n; ++i) {
    xs[i] = tokens ? nullptr : work.x.row<float>(work.entries[i] / work.divisor);
    lows[i] = low.row<float>(i);
  }

  auto* pieces = reinterpret_cast<Expansion*>(
      make({static_cast<std::int64_t>(sizeof(Expansion)) * std::max(shrinks, expansions)}, DType::kI8).raw());
  std::int64_t piece = 0;
  for (std::int64_t u = 0; u < work.unit_count; ++u) {
    const std::int64_t panels = tokens ? 1 : cpu::panels_of(work.units[u].pair->a.outputs());
    for (std::int64_t p = 0; p < panels; p += kGroupPanels) pieces[piece++] = {u, 0, p};
  }
  const cpu::LeftRows left(kernels_, *threads_, arena(), DType::kF32, tokens ? 0 : work.x.row_size(), xs, n);
  threads_->parallel_for(piece, [&](std::int64_t i) {
    const Unit& unit = work.units[pieces[i].unit];
    const MatrixView a(unit.pair->a, {}, unit.expert);
    if (!tokens) {
      left.multiply(a, unit.first, unit.count, pieces[i].panel,
                    std::min<std::int64_t>(kGroupPanels, a.panels() - pieces[i].panel), lows + unit.first);
      return;
    }
    const auto* ids = work.x.data<std::int32_t>();
    for (std::int64_t e = unit.first; e < unit.first + unit.count; ++e) {
      const std::int32_t id = ids[work.entries[e]];
      STRATA_CHECK(id >= 0 && id < a.outputs, "lora: token {} of a vocabulary of {}", id, a.outputs);
      const std::byte* panel = a.weights + static_cast<std::size_t>(id / cpu::kPanelOutputs) *
                                               cpu::packed_panel_bytes(a.dtype, a.inputs);
      for (std::int64_t k = 0; k < a.inputs; ++k)
        lows[e][k] = cpu::panel_weight(a.dtype, panel, nullptr, k, id % cpu::kPanelOutputs);
    }
  });

  piece = 0;
  for (std::int64_t u = 0; u < work.unit_count; ++u) {
    const std::vector<LoraPart>& parts = work.units[u].pair->parts;
    for (int p = 0; p < static_cast<int>(parts.size()); ++p) {
      for (std::int64_t panel = 0; panel < cpu::panels_of(parts[static_cast<std::size_t>(p)].b.outputs());
           panel += kGroupPanels)
        pieces[piece++] = {u, p, panel};
    }
  }
  threads_->parallel_for(piece, [&](std::int64_t i) {
    const Unit& unit = work.units[pieces[i].unit];
    const LoraPart& part = unit.pair->parts[static_cast<std::size_t>(pieces[i].part)];
    const MatrixView b = from_panel(MatrixView(part.b, {}, unit.expert), pieces[i].panel);
    const float* from[kBlockRows];
    float* to[kBlockRows];
    float* sums = worker_scratch(static_cast<std::size_t>(kBlockRows * kGroupOutputs));
    for (int r = 0; r < unit.count; ++r) {
      from[r] = lows[unit.first + r] + part.line;
      to[r] = sums + r * kGroupOutputs;
    }
    kernels_.panels(
        {b.dtype, b.weights, nullptr, nullptr, b.inputs, b.outputs, 0, b.panels(), from, to, unit.count});
    for (int r = 0; r < unit.count; ++r) {
      float* out = work.out.row<float>(work.entries[unit.first + r]) + part.output +
                   pieces[i].panel * cpu::kPanelOutputs;
      for (std::int64_t o = 0; o < b.outputs; ++o) out[o] += to[r][o];
    }
  });
}

void CpuOps::set_lora(LoraTable& table, int slot, const LoraPair* pair) {
  table.pairs.at(static_cast<std::size_t>(slot)) = pair;
}

void CpuOps::lora(Tensor out, Tensor x, const LoraTable& table, Tensor adapters) {
  const std::int64_t rows = out.rows();
  check_extent("lora", "rows of x", x.rows(), rows);
  STRATA_CHECK(table.embedding == (x.dtype() == DType::kI32), "lora: tokens are for embeddings");
  check_adapters(adapters, rows, table);
  if (rows == 0) return;
  check_f32("lora", "out", out);
  const Scratch scratch(arena());
  const auto* of = adapters.data<std::int32_t>();
  LoraWork work{.out = out,
                .x = x,
                .most_lines = table.lines,
                .entries = make({rows}, DType::kI32).data<std::int32_t>()};
  work.units =
      reinterpret_cast<Unit*>(make({static_cast<std::int64_t>(sizeof(Unit)) * rows}, DType::kI8).raw());
  for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(table.pairs.size()); ++slot) {
    const LoraPair* pair = table.pairs[static_cast<std::size_t>(slot)];
    if (pair == nullptr) continue;
    const std::int64_t begin = work.count;
    for (std::int64_t t = 0; t < rows; ++t) {
      if (of[t] == slot) work.entries[work.count++] = static_cast<std::int32_t>(t);
    }
    for (std::int64_t at = begin; at < work.count; at += kBlockRows) {
      work.units[work.unit_count++] = {pair, 0, at,
                                       static_cast<int>(std::min<std::int64_t>(kBlockRows, work.count - at))};
    }
  }
  run_lora(work);
}

void CpuOps::expert_lora(Tensor out, Tensor x, const Routing& routing, const LoraTable& table,
                         Tensor adapters) {
  const std::int64_t rows = routing.expert.rows(), entries = routing.order.elements(),
                     experts = routing.first.elements() - 1;
  check_extent("expert_lora", "rows of out", out.rows(), entries);
  check_adapters(adapters, rows, table);
  STRATA_CHECK(x.rows() == rows || x.rows() == entries, "expert_lora rows: x {}, routing {} or {}", x.rows(),
               rows, entries);
  if (entries == 0) return;
  check_f32("expert_lora", "out", out);
  const Scratch scratch(arena());
  const std::int64_t choices = entries / rows;
  const auto* of = adapters.data<std::int32_t>();
  const auto* order = routing.order.data<std::int32_t>();
  const auto* first = routing.first.data<std::int32_t>();
  LoraWork work{.out = out,
                .x = x,
                .most_lines = table.lines,
                .divisor = x.rows() == entries ? 1 : choices,
                .entries = make({entries}, DType::kI32).data<std::int32_t>()};
  work.units =
      reinterpret_cast<Unit*>(make({static_cast<std::int64_t>(sizeof(Unit)) * entries}, DType::kI8).raw());
  // Each adapter's entries in the order of their experts.
  for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(table.pairs.size()); ++slot) {
    const LoraPair* pair = table.pairs[static_cast<std::size_t>(slot)];
    if (pair == nullptr || std::find(of, of + rows, slot) == of + rows) continue;
    check_extent("expert_lora", "experts", pair->a.experts(), experts);
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t begin = work.count;
      for (std::int64_t i = first[e]; i < first[e + 1]; ++i) {
        if (of[order[i] / choices] == slot) work.entries[work.count++] = order[i];
      }
      for (std::int64_t at = begin; at < work.count; at += kBlockRows) {
        work.units[work.unit_count++] = {
            pair, e, at, static_cast<int>(std::min<std::int64_t>(kBlockRows, work.count - at))};
      }
    }
  }
  run_lora(work);
}

}  // namespace strata
