// Time and allocations of planning and batch building, 64 decoding sequences a step, and time of admitting a prompt where
// the prefix cache is full; no model.
//   build/cpu/bench/scheduler_bench
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <vector>

#include "runtime/batch_builder.h"
#include "runtime/scheduler.h"

namespace {

std::atomic<long> allocations{0};

}  // namespace

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace strata {
namespace {

// 256 sequences of 17 pages run; each admission waits for the oldest to end and takes what the cache must give up: pages, a
// slot for its state and one for a snapshot.
void admissions_with_a_full_cache(int pages, int slots) {
  constexpr int kRunning = 256, kPrompt = 16 * kPageTokens + 1, kAdmissions = 4000;
  Residency residency({.sizes = {.pages = pages, .slots = slots, .tapes = 0}, .prefix_cache = true, .needs_state = true});
  std::deque<Sequence> running;
  std::vector<double> times;
  int token = 0;
  for (int i = 0; i < kAdmissions; ++i) {
    Sequence& s = running.emplace_back();
    for (int t = 0; t < kPrompt; ++t) s.tokens.push_back(token++);
    s.prompt_tokens = s.limit = kPrompt;
    const auto start = std::chrono::steady_clock::now();
    if (!residency.admit(s)) std::abort();
    const int slot = residency.acquire_slot();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    s.computed = kPrompt;
    residency.publish(s, false);
    residency.keep_snapshot(s, kPrompt - 1, slot);
    if (running.size() < kRunning) continue;
    residency.publish(running.front(), true);
    residency.release(running.front());
    running.pop_front();
  }
  times.erase(times.begin(), times.begin() + kAdmissions / 2);
  std::sort(times.begin(), times.end());
  std::printf("%d pages and %d slots, all taken: median %.1f us an admission, 99th percentile %.1f us\n", pages, slots,
              times[times.size() / 2], times[times.size() * 99 / 100]);
  for (Sequence& s : running) residency.release(s);
}

}  // namespace
}  // namespace strata

int main() {
  using namespace strata;
  constexpr int kSequences = 64, kSteps = 2000, kPrompt = 1000;
  Residency residency({.sizes = {.pages = kSequences * 64, .slots = 3 * kSequences, .tapes = 0}, .prefix_cache = true, .needs_state = true});
  Scheduler scheduler(residency, {.max_sequences = kSequences, .max_batch_tokens = 4096});
  std::vector<std::unique_ptr<Sequence>> all;
  for (int i = 0; i < kSequences; ++i) {
    auto s = std::make_unique<Sequence>();
    s->id = static_cast<RequestId>(i);
    for (int t = 0; t < kPrompt; ++t) s->tokens.push_back(i * 7919 + t);
    s->tokens.reserve(kPrompt + 3 * kSteps);
    s->pages.reserve(256);
    s->prompt_tokens = kPrompt;
    s->limit = 1 << 20;
    scheduler.add(s.get());
    all.push_back(std::move(s));
  }
  BatchBuilder builder;
  StepPlan plan;
  std::vector<double> times;
  std::vector<long> counts;
  long grown = 0;
  for (int step = 0; step < kSteps; ++step) {
    const long before = allocations;
    const auto start = std::chrono::steady_clock::now();
    scheduler.plan(Clock::now(), {512, 0}, [](const Sequence&) { return 0; }, plan);
    builder.clear();
    for (const Run& r : plan.runs) {
      Sequence& s = *r.sequence;
      const int row = builder.add({.tokens = std::span(s.tokens).subspan(static_cast<std::size_t>(s.computed), static_cast<std::size_t>(r.rows)),
                                   .start = s.computed, .pages = s.pages, .state_in = s.computed > 0 ? s.slot : -1});
      builder.save(row + r.rows - 1, s.slot);
      builder.want_logits(row + r.rows - 1);
    }
    const Batch batch = builder.batch();
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    bool decodes_only = static_cast<int>(plan.runs.size()) == kSequences;
    for (const Run& r : plan.runs) {
      Sequence& s = *r.sequence;
      decodes_only = decodes_only && r.rows == 1;
      s.computed += r.rows;
      if (s.computed == s.known()) s.tokens.push_back(1);
    }
    if (!decodes_only) continue;
    if (batch.shape.longest_context % kPageTokens == 1) {
      ++grown;  // a step in which every sequence takes a new page and the page table gets wider
      continue;
    }
    times.push_back(us);
    counts.push_back(allocations - before);
  }
  std::sort(times.begin(), times.end());
  std::sort(counts.begin(), counts.end());
  std::printf("%d sequences: median %.1f us a step, 99th percentile %.1f us; allocations a step: median %ld, most %ld (%zu steps; %ld more "
              "took new pages)\n",
              kSequences, times[times.size() / 2], times[times.size() * 99 / 100], counts[counts.size() / 2], counts.back(), counts.size(), grown);
  for (auto& s : all) residency.release(*s);
  for (const int pages : {4400, 5000, 30000}) admissions_with_a_full_cache(pages, 800);
  return counts[counts.size() / 2] == 0 ? 0 : 1;
}
