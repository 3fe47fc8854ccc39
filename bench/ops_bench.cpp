// Speed of the CPU products beside what bounds them: the memory's bandwidth for few rows, arithmetic for many.
//
// Decode reads a ring of matrices of 1.25 GiB in all, larger than any cache, so that every call streams from memory. `of_stream` is
// the share of the bandwidth of a plain read by the same threads, measured in the same process just before.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cpu/cpu_ops.h"

namespace strata {
namespace {

constexpr std::int64_t kRingBytes = std::int64_t{5} << 28;

int threads = 0;  // --threads=N; 0 = one per core

CpuOps& ops() {
  static CpuOps instance({.threads = threads});
  return instance;
}

// Reads `buffer` once with every thread; the sum keeps the compiler honest.
std::uint64_t read_all(const Buffer& buffer) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  std::atomic<std::uint64_t> total{0};
  ops().threads().parallel_for(static_cast<std::int64_t>(buffer.bytes()) / kPiece, [&](std::int64_t i) {
    const auto* p = reinterpret_cast<const std::uint64_t*>(buffer.data() + i * kPiece);
    std::uint64_t sums[8] = {};
    for (std::int64_t j = 0; j < kPiece / 8; j += 8) {
      for (int s = 0; s < 8; ++s) sums[s] += p[j + s];
      __builtin_prefetch(p + j + 512);
    }
    for (const std::uint64_t s : sums) total += s;
  });
  return total;
}

double seconds_of(auto&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes a second of a read of 1 GiB: the best of five.
double stream_rate() {
  static Buffer buffer = [] {
    Buffer b = Buffer::host(std::size_t{1} << 30);
    std::memset(b.data(), 1, b.bytes());
    return b;
  }();
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    best = std::max(best, static_cast<double>(buffer.bytes()) / seconds_of([] { benchmark::DoNotOptimize(read_all(buffer)); }));
  }
  return best;
}

void stream(benchmark::State& state) {
  double rate = 0;
  for (auto _ : state) rate = std::max(rate, stream_rate());
  state.counters["GB/s"] = rate / 1e9;
}

void linear(benchmark::State& state, DType type) {
  const std::int64_t rows = state.range(0), n = state.range(1), k = state.range(2);
  Buffer host = Buffer::host(bytes_of(DType::kF32, n * k));
  const Tensor matrix = host.view(DType::kF32, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i) matrix.data<float>()[i] = static_cast<float>(i * 2654435761U % 2001) * 1e-3F - 1;
  std::vector<Weight> ring;
  ring.push_back(ops().load(HostMatrix(matrix), type));
  const auto bytes = static_cast<std::int64_t>(ring[0].storage.bytes());
  for (std::int64_t i = 1; rows <= 16 && i < kRingBytes / bytes; ++i) ring.push_back(ops().load(HostMatrix(matrix), type));
  Buffer in = Buffer::host(bytes_of(DType::kF32, rows * k)), result = Buffer::host(bytes_of(DType::kF32, rows * n));
  const Tensor x = in.view(DType::kF32, {rows, k}), out = result.view(DType::kF32, {rows, n});
  for (std::int64_t i = 0; i < rows * k; ++i) x.data<float>()[i] = static_cast<float>(i * 40503 % 1999) * 1e-3F - 1;
  const double limit = rows <= 16 ? stream_rate() : 0;
  std::size_t next = 0;
  const double seconds = seconds_of([&] {
    for (auto _ : state) {
      ops().linear(out, x, ring[next], {});
      next = (next + 1) % ring.size();
    }
  });
  const auto calls = static_cast<double>(state.iterations());
  const double rate = static_cast<double>(bytes) * calls / seconds;
  state.counters["GB/s"] = rate / 1e9;
  state.counters["GFLOP/s"] = 2e-9 * static_cast<double>(rows * n * k) * calls / seconds;
  if (limit > 0) state.counters["of_stream"] = rate / limit;
}

void add_all() {
  benchmark::RegisterBenchmark("stream", stream)->Unit(benchmark::kMillisecond)->Iterations(2);
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const std::int64_t rows : {1, 4, 16, 512}) {
      for (const auto& [n, k] : {std::pair{2048, 2048}, {4096, 4096}}) {
        const std::string label = "linear/" + std::string(name(type));
        benchmark::RegisterBenchmark(label.c_str(), linear, type)
            ->Args({rows, n, k})->ArgNames({"T", "N", "K"})->UseRealTime()->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own flags out
  constexpr std::string_view kThreads = "--threads=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(kThreads)) {
    strata::threads = std::atoi(argv[1] + kThreads.size());
    argc = 1;
  }
  strata::add_all();
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
