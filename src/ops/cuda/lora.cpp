// lora, expert_lora, set_lora: checks, and the adapters' table in device memory at an address that stays.
#include "ops/cuda/lora.h"

#include "base/error.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"
#include "ops/cuda/weight_view.h"

namespace strata {
namespace {

const float* floats_of(const Weight& w) {
  STRATA_CHECK(w.dtype == DType::kF32, "lora: matrices must be f32, are {}", name(w.dtype));
  return static_cast<const float*>(cuda::weight_of("lora", w).data.data);
}

// `embedding`: A is [V, R] and its lines lie in a row.
cuda::LoraEntry entry_of(const LoraPair& pair, int most_lines, bool embedding) {
  cuda::LoraEntry e{};
  e.a = floats_of(pair.a);
  e.a_stride = pair.a.data.stride();
  e.lines = static_cast<int>(embedding ? pair.a.inputs() : pair.a.outputs());
  STRATA_CHECK(e.lines <= most_lines, "lora: {} lines, at most {}", e.lines, most_lines);
  STRATA_CHECK(pair.parts.size() <= cuda::kMaxLoraParts, "lora: {} parts, at most {}", pair.parts.size(), cuda::kMaxLoraParts);
  for (const LoraPart& part : pair.parts) {
    e.part[e.parts++] = {.b = floats_of(part.b), .stride = part.b.data.stride(), .line = static_cast<int>(part.line),
                         .rank = static_cast<int>(part.b.inputs()), .output = part.output, .outputs = part.b.outputs()};
  }
  return e;
}

}  // namespace

void CudaOps::set_lora(LoraTable& table, int slot, const LoraPair* pair) {
  table.pairs.at(static_cast<std::size_t>(slot)) = pair;
  if (table.device.bytes() == 0) table.device = allocate(table.pairs.size() * sizeof(cuda::LoraEntry));
  const cuda::LoraEntry entry = pair == nullptr ? cuda::LoraEntry{} : entry_of(*pair, table.lines, table.embedding);
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(entry));
  copy_to_device(table.device.view(DType::kI8, {kBytes}, static_cast<std::size_t>(slot) * sizeof(entry)), &entry);
}

void CudaOps::lora(Tensor out, Tensor x, const LoraTable& table, Tensor adapters) {
  cuda::LoraArgs args;
  args.entries = out.rows();
  if (args.entries == 0) return;
  args.outputs = out.row_size();
  args.out = cuda::rows_of("lora", "out", out, args.entries, args.outputs);
  STRATA_CHECK(table.embedding == (x.dtype() == DType::kI32), "lora: tokens are for embeddings");
  if (table.embedding) {
    cuda::check_extent("lora", "tokens", x.elements(), args.entries);
    args.tokens = cuda::ints_of("lora", "tokens", x);
  } else {
    args.inputs = x.row_size();
    args.x = cuda::rows_of("lora", "x", x, args.entries, args.inputs);
  }
  run_lora(args, table, adapters, args.entries);
}

void CudaOps::expert_lora(Tensor out, Tensor x, const Routing& routing, const LoraTable& table, Tensor adapters) {
  const std::int64_t rows = routing.expert.rows(), entries = routing.order.elements();
  STRATA_CHECK(x.rows() == rows || x.rows() == entries, "expert_lora: rows of x {}, routing {} or {}", x.rows(), rows, entries);
  if (entries == 0) return;
  cuda::LoraArgs args;
  args.entries = entries;
  args.inputs = x.row_size();
  args.outputs = out.row_size();
  args.x = cuda::rows_of("expert_lora", "x", x, x.rows(), args.inputs);
  args.out = cuda::rows_of("expert_lora", "out", out, entries, args.outputs);
  args.experts = cuda::ints_of("expert_lora", "experts", routing.expert);
  args.choices = static_cast<int>(routing.expert.row_size());
  args.divisor = x.rows() == entries ? 1 : args.choices;
  run_lora(args, table, adapters, rows);
}

void CudaOps::run_lora(cuda::LoraArgs& args, const LoraTable& table, const Tensor& adapters, std::int64_t rows) {
  STRATA_CHECK(table.device.bytes() > 0, "lora: a table that set_lora has not seen");
  cuda::check_extent("lora", "adapters", adapters.elements(), rows);
  for (const LoraPair* pair : table.pairs) {
    if (pair != nullptr && !table.embedding) cuda::check_extent("lora", "inputs of A", pair->a.inputs(), args.inputs);
  }
  const Scratch scratch(arena());
  args.most_lines = table.lines;
  args.low = make({args.entries, table.lines}, DType::kF32).data<float>();
  args.table = reinterpret_cast<const cuda::LoraEntry*>(table.device.data());
  args.adapters = cuda::ints_of("lora", "adapters", adapters);
  cuda::launch_lora(args, stream_);
}

}  // namespace strata
