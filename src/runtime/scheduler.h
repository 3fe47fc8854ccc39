// Scheduler: who runs now. Chooses each step's rows; who fits is Residency's to say.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/residency.h"
#include "runtime/sequence.h"
#include "runtime/step_cost.h"

namespace strata {

struct SchedulerOptions {
  int max_sequences = 32;       // running at once
  int max_batch_tokens = 512;   // rows of a step; at least max_sequences
  double aging_seconds = 10;    // waiting this long is worth one step of priority
  // A verify pass of one op covers this many sequences and rows each; more drafting sequences split the step.
  int verify_sequences = 32;
};

// Rows of one sequence in a step: `rows` known tokens from `computed` on, then up to `drafts` drafted ones.
struct Run {
  Sequence* sequence = nullptr;
  int rows = 0;
  int drafts = 0;
};

struct StepPlan {
  std::vector<Run> runs;             // decodes first
  std::vector<Sequence*> admitted;
  std::vector<Sequence*> preempted;  // hold nothing any more and wait again
  bool drafts_split = false;         // some sequences got no drafts because the verify pass was full
  void clear() { runs.clear(), admitted.clear(), preempted.clear(), drafts_split = false; }
};

// Order within a step: decoding sequences, oldest first; then prefills by priority and age; then admissions, first come
// first served with aging. When pages run out the youngest running sequence of the lowest priority is preempted, keeps its
// tokens, and is resumed later by computing them again. The oldest one always advances, so all finish. One thread.
class Scheduler {
 public:
  Scheduler(Residency& residency, const SchedulerOptions& options);

  void add(Sequence* sequence);      // waits
  void remove(Sequence* sequence);   // finished or aborted; what it holds is the caller's to release
  void requeue(Sequence& sequence);  // gives all it holds back and waits again, its tokens kept
  // Rows of a step for now; 1 to the options' max_batch_tokens.
  void limit_rows(int rows) { row_limit_ = std::clamp(rows, 1, options_.max_batch_tokens); }
  int row_limit() const { return row_limit_; }

  // `beside`: most prefill beside decodes, so that streams are not stalled.
  // want_drafts(sequence) -> drafts worth trying for a decoding sequence.
  template <typename WantDrafts>
  void plan(Clock::time_point now, const PrefillLimit& beside, WantDrafts&& want_drafts, StepPlan& plan) {
    begin(now, plan);
    for (std::size_t i = 0; i < decoding_.size(); ++i) {
      if (decoding_[i] != nullptr) plan_decode(*decoding_[i], want_drafts(*decoding_[i]), plan);
    }
    plan_prefills(beside, plan);
    plan_admissions(now, beside, plan);
  }

  const std::vector<Sequence*>& running() const { return running_; }
  const std::vector<Sequence*>& waiting() const { return waiting_; }

 private:
  double rank(const Sequence& sequence, Clock::time_point now) const;  // higher runs first
  void sort_by_rank(std::vector<Sequence*>& sequences, Clock::time_point now) const;  // equal ranks: the older id first
  void begin(Clock::time_point now, StepPlan& plan);
  void plan_decode(Sequence& sequence, int drafts, StepPlan& plan);
  void plan_prefills(const PrefillLimit& beside, StepPlan& plan);
  void plan_admissions(Clock::time_point now, const PrefillLimit& beside, StepPlan& plan);
  bool plan_prefill(Sequence& sequence, const PrefillLimit& beside, StepPlan& plan);  // false: the step is full
  bool make_room(Sequence& sequence, int tokens, StepPlan& plan);      // false: it was itself preempted
  void preempt(Sequence& sequence, StepPlan& plan);

  Residency& residency_;
  SchedulerOptions options_;
  std::vector<Sequence*> waiting_, running_;   // running: oldest first
  std::vector<Sequence*> decoding_, prefilling_;  // of the step being planned; null = preempted since
  int row_limit_ = 0, budget_ = 0, drafting_ = 0;
  double beside_left_ = 0;                        // of the limit beside decodes
};

}  // namespace strata
