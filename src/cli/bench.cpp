// strata bench: prefill and decode speed of a model on this machine, beside the machine's measured memory bandwidth.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>

#include "cli/bench_url.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/timed_ops.h"
#include "runtime/batch_builder.h"
#include "runtime/memory_pools.h"
#include "runtime/padding.h"
#include "runtime/ref_pool.h"
#include "runtime/runner.h"

namespace strata {
namespace {

struct BenchFlags {
  UrlBenchFlags url;
  ModelFlags model;
  bool json = false, ops = false;
  std::vector<int> batches = {1, 4, 16}, contexts = {128, 1024};
  int prefill = 512, repeat = 9;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes a second that `threads` threads read from memory larger than the caches: the best of five passes over 1 GiB.
double measure_bandwidth(int threads) {
  const std::size_t bytes = std::size_t{1} << 30;
  const Buffer buffer = Buffer::host(bytes);
  std::fill_n(reinterpret_cast<std::uint64_t*>(buffer.data()), bytes / 8, 1);
  std::uint64_t total = 0;
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    best = std::min(best, seconds_of([&] {
      std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
      std::vector<std::jthread> pool;
      for (int t = 0; t < threads; ++t) {
        pool.emplace_back([&, t] {
          const auto words = bytes / 8 / static_cast<std::size_t>(threads);
          const auto* p = reinterpret_cast<const std::uint64_t*>(buffer.data()) + static_cast<std::size_t>(t) * words;
          sums[static_cast<std::size_t>(t) * 8] = std::accumulate(p, p + words, std::uint64_t{0});
        });
      }
      pool.clear();
      total = std::accumulate(sums.begin(), sums.end(), total);
    }));
  }
  if (total == 0) std::printf("impossible\n");  // keeps the sums alive
  return static_cast<double>(bytes) / best;
}

// Runs the model directly: `batch` sequences of `context` computed tokens each.
class Subject {
 public:
  // `rows`: of one sequence in a step, at most; `context`: tokens of a sequence in the end.
  Subject(const LoadedModel& loaded, int batch, int context, int rows)
      : model_(*loaded.model), ops_(*loaded.ops), batch_(batch),
        pages_each_((context + kPageTokens - 1) / kPageTokens),
        pools_(model_.states(), {.pages = batch * pages_each_, .slots = batch + 1, .tapes = 0}, ops_.activation(), ops_),
        runner_(ops_, limits(batch, rows, context)) {}

  // `rows` tokens of every sequence from `start` on; seconds.
  double step(int rows, int start) {
    std::vector<int> tokens(static_cast<std::size_t>(rows));
    builder_.clear();
    for (int s = 0; s < batch_; ++s) {
      for (int i = 0; i < rows; ++i) tokens[static_cast<std::size_t>(i)] = (7 * (start + i) + 13 * s + 1) % model_.vocab_size;
      std::vector<int> pages(static_cast<std::size_t>(pages_each_));
      std::iota(pages.begin(), pages.end(), s * pages_each_);
      const int row = builder_.add({.tokens = tokens, .start = start, .pages = pages, .state_in = start == 0 ? -1 : s + 1});
      builder_.save(row + rows - 1, s + 1);
      builder_.want_logits(row + rows - 1);
    }
    runner_.pad(builder_);
    const Batch step = builder_.batch();
    return seconds_of([&] {
      const Scratch scratch(ops_.arena());
      const ModelOutput out = runner_.forward(model_, step, pools_.views());
      if (runner_.device() == nullptr) return;
      runner_.begin_best(out.logits, batch_);
      runner_.finish_chain();  // waits
    });
  }

 private:
  StepLimits limits(int batch, int rows, int context) const {
    const BatchShape most = padded_shape({.rows = batch * rows, .sequences = batch, .logit_rows = batch, .saves = batch, .longest_run = kTapeRows, .longest_context = context});
    return {.rows = most.rows, .sequences = most.sequences, .pages = most.longest_context / kPageTokens, .logit_rows = most.logit_rows, .vocab = model_.vocab_size};
  }

  const Model& model_;
  Ops& ops_;
  int batch_, pages_each_;
  MemoryPools pools_;
  Runner runner_;
  BatchBuilder builder_;
};

// What one decode step of `batch` sequences moves beside the matrices: keys, values and states (read and written).
double memory_bytes(const Model& m, DType kv_dtype, int batch, int context) {
  const auto specs = m.states();
  return static_cast<double>(MemoryPools::page_bytes(specs, kv_dtype)) / kPageTokens * context * batch +
         2.0 * static_cast<double>(MemoryPools::slot_bytes(specs)) * batch;
}

// What each op took of `steps` steps, the longest first; adds to `out` in JSON.
void report_ops(const OpTimes& times, int steps, double bandwidth, bool json, nlohmann::ordered_json& out) {
  std::vector<std::pair<std::string_view, OpTime>> sorted(times.begin(), times.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double all = std::accumulate(sorted.begin(), sorted.end(), 0.0, [](double sum, const auto& t) { return sum + t.second.seconds; });
  if (!json) std::printf("  %-16s %8s %10s %8s %10s %10s\n", "op", "calls", "ms a step", "of step", "of memory", "Gop/s");
  for (const auto& [name, t] : sorted) {
    const double memory = t.bytes / t.seconds / bandwidth, rate = t.operations / t.seconds;
    if (json) {
      out["ops"].push_back({{"name", name}, {"calls", t.calls / steps}, {"seconds", t.seconds / steps}, {"share_of_bandwidth", memory}, {"operations_per_second", rate}});
      continue;
    }
    std::printf("  %-16s %8.0f %10.3f %7.1f%%", std::string(name).c_str(), static_cast<double>(t.calls) / steps, t.seconds / steps * 1e3, 100 * t.seconds / all);
    if (t.bytes > 0) std::printf(" %9.0f%%", 100 * memory);
    if (rate > 0) std::printf(" %10.1f", rate * 1e-9);
    std::printf("\n");
  }
}

int bench(BenchFlags& f) {
  OpTimes op_times;
  if (f.ops) f.model.backend.times = &op_times;
  const LoadedModel loaded = load_model(f.model);
  const int threads = f.model.backend.threads > 0 ? f.model.backend.threads : static_cast<int>(std::thread::hardware_concurrency());
  const bool host = loaded.ops->device() == Device::kCpu;  // elsewhere neither bandwidth nor what is read of weights is known
  const double bandwidth = host ? measure_bandwidth(threads) : 0;
  nlohmann::ordered_json out = {{"model", loaded.info.name}, {"backend", f.model.backend.name}, {"threads", threads}, {"memory_bytes_per_second", bandwidth}};
  if (!f.json && host) std::printf("%s, %d threads, memory %.1f GB/s\n", loaded.info.name.c_str(), threads, bandwidth / 1e9);

  {
    std::vector<double> times;
    Subject subject(loaded, 1, f.prefill, f.prefill);
    subject.step(f.prefill, 0);
    op_times.clear();
    for (int i = 0; i < f.repeat; ++i) times.push_back(subject.step(f.prefill, 0));
    const double rate = f.prefill / median(times);
    out["prefill"] = {{"tokens", f.prefill}, {"tokens_per_second", rate}};
    if (!f.json) std::printf("prefill of %d tokens: %.0f tokens/s\n", f.prefill, rate);
    if (f.ops) report_ops(op_times, f.repeat, bandwidth, f.json, out["prefill"]);
  }
  if (!f.json) std::printf("%6s %8s %12s %14s %12s %10s\n", "batch", "context", "ms a step", "tokens/s", "MB a step", "of memory");
  for (const int context : f.contexts) {
    for (const int batch : f.batches) {
      const int steps = 5 * f.repeat;
      Subject subject(loaded, batch, context + steps, 256);
      for (int at = 0; at < context; at += 256) subject.step(std::min(256, context - at), at);
      std::vector<double> times;
      op_times.clear();
      const std::uint64_t read = loaded.ops->weight_bytes_read();
      for (int i = 0; i < steps; ++i) times.push_back(subject.step(1, context + i));
      const double weights = static_cast<double>(loaded.ops->weight_bytes_read() - read) / steps;
      const double t = median(times), bytes = weights + memory_bytes(*loaded.model, loaded.ops->activation(), batch, context), share = host ? bytes / t / bandwidth : 0;
      out["decode"].push_back({{"batch", batch}, {"context", context}, {"seconds", t}, {"tokens_per_second", batch / t},
                               {"bytes", bytes}, {"share_of_bandwidth", share}});
      if (!f.json) std::printf("%6d %8d %12.3f %14.0f %12.1f %9.0f%%\n", batch, context, t * 1e3, batch / t, bytes / 1e6, share * 100);
      if (f.ops) report_ops(op_times, steps, bandwidth, f.json, out["decode"].back());
    }
  }
  if (f.json) std::printf("%s\n", out.dump().c_str());
  return 0;
}

}  // namespace

Command add_bench_command(CLI::App& root) {
  auto* app = root.add_subcommand("bench", "Measure prefill and decode, or a running server (--url)");
  auto f = std::make_shared<BenchFlags>();
  add_model_flags(*app, f->model);
  app->add_flag("--json", f->json, "Print one JSON object");
  app->add_flag("--ops", f->ops, "Also say what each op takes of a step (CPU)");
  app->add_option("--batches", f->batches, "Batch sizes to decode with")->check(CLI::PositiveNumber)->delimiter(',');
  app->add_option("--contexts", f->contexts, "Tokens before the decoded one")->check(CLI::PositiveNumber)->delimiter(',');
  app->add_option("--prefill", f->prefill, "Tokens of the prefill")->check(CLI::PositiveNumber);
  app->add_option("--repeat", f->repeat, "Measurements a median is taken of")->check(CLI::PositiveNumber);
  add_url_bench_flags(*app, f->url);
  return {app, [f] { return f->url.url.empty() ? bench(*f) : run_url_bench(f->url); }};
}

}  // namespace strata
