// Speed of the sequence-mixing ops on the CPU: attention (prefill and decode), the recurrences, the
// convolution.
#include <benchmark/benchmark.h>

#include "ops/batch_fixture.h"
#include "ops/cpu/cpu_ops.h"

namespace strata::testing {
namespace {

// rows of one sequence after `start` others, `heads` over `kv_heads` of `dim`.
void attention(benchmark::State& state, int start, int rows, int heads, int kv_heads, int dim, DType dtype) {
  CpuOps ops;
  const PageTables tables({start + rows}, 1);
  const HostBatch batch({{.start = start, .rows = rows}}, tables);
  const HostTensor q = random_tensor({rows, heads, dim}, 1), out({rows, heads, dim});
  const HostTensor k({tables.total, kPageTokens, kv_heads, dim}, dtype),
      v({tables.total, kPageTokens, kv_heads, dim}, dtype);
  for (auto _ : state) ops.attention({.out = out, .q = q, .kv = {k, v, {}}, .scale = 0.1F}, batch.batch);
  const double keys = 0.5 * rows * (2.0 * start + rows + 1);
  state.counters["GFLOP/s"] = benchmark::Counter(
      4e-9 * keys * heads * dim * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(
      2e-9 * static_cast<double>(bytes_of(dtype, static_cast<std::int64_t>(start + rows) * kv_heads * dim)) *
          static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(attention, prefill_2k_16x2x256_f32, 0, 2048, 16, 2, 256, DType::kF32)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, chunk_512_at_7680_16x2x256_bf16, 7680, 512, 16, 2, 256, DType::kBF16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, prefill_1k_32x32x128_f32, 0, 1024, 32, 32, 128, DType::kF32)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, decode_8k_16x2x256_f32, 8191, 1, 16, 2, 256, DType::kF32)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, decode_8k_16x2x256_bf16, 8191, 1, 16, 2, 256, DType::kBF16)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, decode_8k_32x8x128_bf16, 8191, 1, 32, 8, 128, DType::kBF16)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(attention, decode_4k_32x32x128_bf16, 4095, 1, 32, 32, 128, DType::kBF16)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// 16 key and 32 value heads of 128, as in Qwen3.5-35B-A3B.
void gated_delta(benchmark::State& state) {
  constexpr int kKeyHeads = 16, kValueHeads = 32, kDim = 128, kWidth = (2 * kKeyHeads + kValueHeads) * kDim;
  const int rows = static_cast<int>(state.range(0));
  CpuOps ops;
  const PageTables tables({rows}, 1);
  const HostBatch batch({{.rows = rows, .state_in = 0, .saves = {{rows - 1, 0}}}}, tables);
  const HostTensor qkv = random_tensor({rows, kWidth}, 1), a = random_tensor({rows, kValueHeads}, 2),
                   out({rows, kValueHeads, kDim}), vector = random_tensor({kValueHeads}, 3),
                   slots({1, kValueHeads, kDim, kDim});
  for (auto _ : state) {
    ops.gated_delta({.out = out,
                     .qkv = qkv,
                     .a = a,
                     .b = a,
                     .a_log = vector,
                     .dt_bias = vector,
                     .key_heads = kKeyHeads,
                     .value_heads = kValueHeads,
                     .key_dim = kDim,
                     .value_dim = kDim,
                     .state = slots},
                    batch.batch);
  }
  state.SetItemsProcessed(state.iterations() * rows);
}
BENCHMARK(gated_delta)->Arg(1)->Arg(256)->Unit(benchmark::kMicrosecond)->UseRealTime();

void ssd(benchmark::State& state) {
  constexpr int kHeads = 64, kDim = 64, kGroups = 8, kStates = 128,
                kWidth = kHeads * kDim + 2 * kGroups * kStates;
  const int rows = static_cast<int>(state.range(0));
  CpuOps ops;
  const PageTables tables({rows}, 1);
  const HostBatch batch({{.rows = rows, .state_in = 0, .saves = {{rows - 1, 0}}}}, tables);
  const HostTensor xbc = random_tensor({rows, kWidth}, 1), dt = random_tensor({rows, kHeads}, 2),
                   out({rows, kHeads, kDim}), vector = random_tensor({kHeads}, 3),
                   slots({1, kHeads, kDim, kStates});
  for (auto _ : state) {
    ops.ssd({.out = out,
             .xbc = xbc,
             .dt = dt,
             .a_log = vector,
             .dt_bias = vector,
             .d = vector,
             .heads = kHeads,
             .head_dim = kDim,
             .groups = kGroups,
             .state_dim = kStates,
             .state = slots},
            batch.batch);
  }
  state.SetItemsProcessed(state.iterations() * rows);
}
BENCHMARK(ssd)->Arg(1)->Arg(256)->Unit(benchmark::kMicrosecond)->UseRealTime();

void causal_conv(benchmark::State& state) {
  constexpr int kChannels = 8192;
  const int rows = static_cast<int>(state.range(0));
  CpuOps ops;
  const PageTables tables({rows}, 1);
  const HostBatch batch({{.rows = rows, .state_in = 0, .saves = {{rows - 1, 0}}}}, tables);
  const HostTensor x = random_tensor({rows, kChannels}, 1), weight = random_tensor({kChannels, 4}, 2),
                   out({rows, kChannels}), slots({1, kChannels, 3});
  for (auto _ : state) ops.causal_conv({.out = out, .x = x, .weight = weight, .state = slots}, batch.batch);
  state.SetItemsProcessed(state.iterations() * rows);
}
BENCHMARK(causal_conv)->Arg(1)->Arg(256)->Unit(benchmark::kMicrosecond)->UseRealTime();

void glu(benchmark::State& state) {
  const int rows = static_cast<int>(state.range(0));
  CpuOps ops;
  const HostTensor x = random_tensor({rows, 2 * 8192}, 1), out({rows, 8192});
  for (auto _ : state) ops.glu(out, x, Activation::kSilu, 0);
  state.SetItemsProcessed(state.iterations() * rows);
}
BENCHMARK(glu)->Arg(1)->Arg(256)->Unit(benchmark::kMicrosecond)->UseRealTime();

void rms_norm(benchmark::State& state) {
  const int rows = static_cast<int>(state.range(0));
  CpuOps ops;
  const HostTensor x = random_tensor({rows, 4096}, 1), out({rows, 4096}), weight = random_tensor({4096}, 2);
  for (auto _ : state) ops.rms_norm(out, x, weight, 1e-6F);
  state.SetItemsProcessed(state.iterations() * rows);
}
BENCHMARK(rms_norm)->Arg(1)->Arg(256)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace strata::testing

BENCHMARK_MAIN();
