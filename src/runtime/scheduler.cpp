#include "runtime/scheduler.h"

#include <algorithm>

namespace strata {

Scheduler::Scheduler(Residency& residency, const SchedulerOptions& options) : residency_(residency), options_(options) {
  row_limit_ = options_.max_batch_tokens = std::max(options_.max_batch_tokens, options_.max_sequences);
}

double Scheduler::rank(const Sequence& s, Clock::time_point now) const {
  return s.request.priority + std::chrono::duration<double>(now - s.arrived).count() / options_.aging_seconds;
}

void Scheduler::sort_by_rank(std::vector<Sequence*>& sequences, Clock::time_point now) const {
  std::sort(sequences.begin(), sequences.end(), [&](const Sequence* a, const Sequence* b) {
    const double x = rank(*a, now), y = rank(*b, now);
    return x > y || (x == y && a->id < b->id);
  });
}

void Scheduler::add(Sequence* sequence) { waiting_.push_back(sequence); }

void Scheduler::remove(Sequence* sequence) {
  std::erase(waiting_, sequence);
  std::erase(running_, sequence);
}

void Scheduler::begin(Clock::time_point now, StepPlan& plan) {
  plan.clear();
  budget_ = row_limit_;
  drafting_ = 0;
  sort_by_rank(running_, now);
  decoding_.clear();
  prefilling_.clear();
  for (Sequence* s : running_) (s->remaining() == 1 ? decoding_ : prefilling_).push_back(s);
}

void Scheduler::requeue(Sequence& s) {
  residency_.publish(s, true);
  residency_.release(s);
  std::erase(running_, &s);
  waiting_.push_back(&s);
}

void Scheduler::preempt(Sequence& s, StepPlan& plan) {
  requeue(s);
  std::erase_if(plan.runs, [&](const Run& r) {
    if (r.sequence == &s) budget_ += r.rows + r.drafts;
    return r.sequence == &s;
  });
  std::replace(decoding_.begin(), decoding_.end(), &s, static_cast<Sequence*>(nullptr));
  std::replace(prefilling_.begin(), prefilling_.end(), &s, static_cast<Sequence*>(nullptr));
  plan.preempted.push_back(&s);
}

bool Scheduler::make_room(Sequence& s, int tokens, StepPlan& plan) {
  while (!residency_.grow(s, tokens)) {
    Sequence* youngest = running_.back();  // running_ is in the order of rank
    preempt(*youngest, plan);
    if (youngest == &s) return false;
  }
  return true;
}

void Scheduler::plan_decode(Sequence& s, int drafts, StepPlan& plan) {
  if (budget_ == 0 || !make_room(s, s.known(), plan)) return;
  // Drafts take what is left over: rows beside one for every other decode, pages that are free or cached.
  drafts = std::min({drafts, kTapeRows - 1, s.limit - s.known(), budget_ - static_cast<int>(decoding_.size())});
  if (drafts > 0 && drafting_ == options_.verify_sequences) {
    plan.drafts_split = true;
    drafts = 0;
  }
  if (drafts <= 0 || s.start_slot >= 0 || !residency_.grow(s, s.known() + drafts)) drafts = 0;
  if (drafts > 0) ++drafting_;
  plan.runs.push_back({&s, 1, drafts});
  budget_ -= 1 + drafts;
}

bool Scheduler::plan_prefill(Sequence& s, const PrefillLimit& beside, StepPlan& plan) {
  const int most = decoding_.empty() ? budget_ : std::min(budget_, beside.fitting(beside_left_, s.computed));
  const int rows = std::min(s.remaining(), most);
  if (rows <= 0) return false;
  plan.runs.push_back({&s, rows, 0});
  budget_ -= rows;
  beside_left_ -= beside.count(rows, s.computed);
  return true;
}

void Scheduler::plan_prefills(const PrefillLimit& beside, StepPlan& plan) {
  beside_left_ = beside.rows;
  for (Sequence* s : prefilling_) {
    if (s != nullptr && !plan_prefill(*s, beside, plan)) break;
  }
}

void Scheduler::plan_admissions(Clock::time_point now, const PrefillLimit& beside, StepPlan& plan) {
  if (waiting_.empty() || !plan.preempted.empty()) return;
  sort_by_rank(waiting_, now);
  bool adapter_waits = false;
  for (std::size_t i = 0; i < waiting_.size() && static_cast<int>(running_.size()) < options_.max_sequences; ++i) {
    Sequence& s = *waiting_[i];
    // One that waits for an adapter's slot lets base requests pass, but no other adapter: the next free slot is its own.
    adapter_waits = adapter_waits || !residency_.adapter_fits(s);
    if (adapter_waits && s.lora != nullptr) continue;
    const bool room = budget_ > 0 && (decoding_.empty() || beside_left_ > 0);
    if (!room || !residency_.admit(s)) break;
    waiting_[i] = nullptr;
    running_.push_back(&s);
    plan.admitted.push_back(&s);
    plan_prefill(s, beside, plan);
  }
  std::erase(waiting_, nullptr);
}

}  // namespace strata
