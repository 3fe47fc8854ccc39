// What the engine counts: gauges, counters and histograms, read as a copy.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// Cumulative counts of values up to each bound, as Prometheus has them; the last bucket is +Inf.
struct Histogram {
  std::vector<double> bounds;
  std::vector<std::uint64_t> counts;  // bounds.size() + 1, not cumulative
  double sum = 0;

  Histogram() = default;
  explicit Histogram(std::vector<double> upper_bounds) : bounds(std::move(upper_bounds)), counts(bounds.size() + 1) {}
  void observe(double value);
  std::uint64_t count() const;
};

struct EngineMetrics {
  // gauges
  int running = 0, waiting = 0;
  int pages_total = 0, pages_used = 0, pages_cached = 0;    // used by sequences; held by the prefix cache alone
  int slots_total = 0, slots_used = 0, slots_cached = 0;
  // counters
  std::map<std::string, std::uint64_t> requests;            // by outcome: stop, length, aborted, deadline, error, refused
  std::uint64_t prompt_tokens = 0, output_tokens = 0, computed_tokens = 0, cached_tokens = 0;
  std::uint64_t steps = 0, preemptions = 0, split_steps = 0;
  std::uint64_t cache_queries_tokens = 0, cache_hit_tokens = 0;
  std::map<std::string, std::uint64_t> cache_misses;        // by reason
  std::uint64_t drafted = 0, accepted = 0, verify_steps = 0, verify_rows = 0;
  std::vector<std::uint64_t> drafted_at, accepted_at;       // by draft position
  std::uint64_t state_reads = 0, state_writes = 0;          // recurrent states of a sequence, all layers together
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> adapter_drafts;  // drafted and accepted, by LoRA adapter
  std::uint64_t adapter_loads = 0;                          // adapters brought into a slot
  int adapters_in_use = 0;                                  // gauge: slots that running sequences use
  // seconds
  Histogram ttft, inter_token, queue, step;
  std::map<std::string, double> step_seconds;               // total by part: schedule, batch, forward, sample, draft
  std::map<std::string, double> device_seconds;             // that a device beside the host had work, by part: forward, draft
};

}  // namespace strata
