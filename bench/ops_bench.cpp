// Speed of the CPU products beside what bounds them: the memory's bandwidth for few rows, arithmetic for many.
//
// Decode reads a ring of matrices of 1.25 GiB in all, larger than any cache, so that every call streams from memory. `of_stream` is
// the share of the bandwidth of a plain read by the same threads, measured in the same process just after; medians of the
// times of single calls, and the best of them beside, for machines that are busy with other work.
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

constexpr std::size_t kStreamBytes = std::size_t{64} << 20;

// Reads kStreamBytes once with every thread; the sum keeps the compiler honest.
std::uint64_t read_all(const std::byte* from) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  std::atomic<std::uint64_t> total{0};
  ops().threads().parallel_for(static_cast<std::int64_t>(kStreamBytes) / kPiece, [&](std::int64_t i) {
    const auto* p = reinterpret_cast<const std::uint64_t*>(from + i * kPiece);
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

// Median and least of the times of one thing.
struct Times {
  std::vector<double> seconds;
  void add(auto&& body) { seconds.push_back(seconds_of(body)); }
  double best() const { return *std::min_element(seconds.begin(), seconds.end()); }
  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Reads of 1 GiB in pieces of 64 MiB, each timed.
Times stream_times() {
  static Buffer buffer = [] {
    Buffer b = Buffer::host(std::size_t{1} << 30);
    std::memset(b.data(), 1, b.bytes());
    return b;
  }();
  Times times;
  for (std::size_t at = 0; at < buffer.bytes(); at += kStreamBytes) {
    times.add([&] { benchmark::DoNotOptimize(read_all(buffer.data() + at)); });
  }
  return times;
}

void stream(benchmark::State& state) {
  for (auto _ : state) {
    const Times times = stream_times();
    state.counters["GB/s"] = 1e-9 * static_cast<double>(kStreamBytes) / times.median();
    state.counters["best_GB/s"] = 1e-9 * static_cast<double>(kStreamBytes) / times.best();
  }
}

Weight copy_of(const Weight& w) {
  Weight copy{w.dtype, w.shape, Buffer::host(w.storage.bytes()), {}, {}};
  std::memcpy(copy.storage.data(), w.storage.data(), w.storage.bytes());
  const auto moved = [&](const Tensor& t) {
    return t.empty() ? Tensor{} : copy.storage.view(t.dtype(), t.shape(), static_cast<std::size_t>(t.raw() - w.storage.data()));
  };
  copy.data = moved(w.data);
  copy.scales = moved(w.scales);
  return copy;
}

void linear(benchmark::State& state, DType type) {
  const std::int64_t rows = state.range(0), n = state.range(1), k = state.range(2);
  Buffer host = Buffer::host(bytes_of(DType::kF32, n * k));
  const Tensor matrix = host.view(DType::kF32, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i) matrix.data<float>()[i] = static_cast<float>(i * 2654435761U % 2001) * 1e-3F - 1;
  Buffer bytes8 = Buffer::host(static_cast<std::size_t>(n * k));  // there is no conversion to f8: its bytes are made here
  const Tensor fp8 = bytes8.view(DType::kF8E4M3, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i) fp8.data<std::uint8_t>()[i] = float_to_f8e4m3(matrix.data<float>()[i]);
  const HostMatrix source(type == DType::kF8E4M3 ? fp8 : matrix);
  std::vector<Weight> ring;
  ring.push_back(ops().load(source, type));
  const auto bytes = static_cast<std::int64_t>(ring[0].storage.bytes());
  for (std::int64_t i = 1; rows <= 16 && i < kRingBytes / bytes; ++i) ring.push_back(copy_of(ring[0]));
  Buffer in = Buffer::host(bytes_of(DType::kF32, rows * k)), result = Buffer::host(bytes_of(DType::kF32, rows * n));
  const Tensor x = in.view(DType::kF32, {rows, k}), out = result.view(DType::kF32, {rows, n});
  for (std::int64_t i = 0; i < rows * k; ++i) x.data<float>()[i] = static_cast<float>(i * 40503 % 1999) * 1e-3F - 1;
  Times times;
  std::size_t next = 0;
  for (auto _ : state) {
    times.add([&] { ops().linear(out, x, ring[next], {}); });
    next = (next + 1) % ring.size();
  }
  const double flops = 2e-9 * static_cast<double>(rows * n * k), gigabytes = 1e-9 * static_cast<double>(bytes);
  state.counters["GB/s"] = gigabytes / times.median();
  state.counters["best_GB/s"] = gigabytes / times.best();
  state.counters["GFLOP/s"] = flops / times.median();
  state.counters["best_GFLOP/s"] = flops / times.best();
  if (rows > 16) return;
  const Times streams = stream_times();
  state.counters["of_stream"] = gigabytes / times.median() / (1e-9 * static_cast<double>(kStreamBytes) / streams.median());
  state.counters["best_of_stream"] = gigabytes / times.best() / (1e-9 * static_cast<double>(kStreamBytes) / streams.best());
}

void add_all() {
  benchmark::RegisterBenchmark("stream", stream)->Unit(benchmark::kMillisecond)->Iterations(2);
  for (const DType type : {DType::kBF16, DType::kF32, DType::kF16, DType::kF8E4M3, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                           DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS, DType::kMXFP4}) {
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
