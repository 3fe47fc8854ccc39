// EngineCore: the steps of the engine, one thread's worth, without queues: plan, draft, batch, forward, sample, account.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/lora_bank.h"
#include "runtime/adapters.h"
#include "runtime/batch_builder.h"
#include "runtime/draft_policy.h"
#include "runtime/draw_queue.h"
#include "runtime/drafter.h"
#include "runtime/engine.h"
#include "runtime/memory_pools.h"
#include "runtime/runner.h"
#include "runtime/scheduler.h"
#include "runtime/step_cost.h"

namespace strata {

// Replaces the drafter that the options name; tests draft what they like.
using DrafterFactory = std::function<std::unique_ptr<Drafter>(Runner&)>;

// One thread.
class EngineCore {
 public:
  EngineCore(std::shared_ptr<const Model> model, std::shared_ptr<Ops> ops, const ModelInfo& info, const EngineOptions& options,
             const DrafterFactory& drafter = {});
  ~EngineCore();

  // Any thread: checks what can be checked before the request waits, and makes a sequence of it. Id, sink and time of arrival are
  // the caller's to set, and the seed of a request that has none.
  Result<std::unique_ptr<Sequence>> prepare(Request request) const;
  void add(std::unique_ptr<Sequence> sequence);
  void abort(RequestId id);
  void abort_all(const std::string& reason);

  // Any thread: reads the folder, checks it against the model, and names it.
  Result<std::monostate> load_adapter(const std::string& name, const std::filesystem::path& folder, bool replace);
  AdapterRegistry& adapters() { return adapters_; }
  const AdapterRegistry& adapters() const { return adapters_; }

  // The prefix cache in options.cache_file. A file that cannot be used is reported in the log and left alone.
  void restore_cache();
  void save_cache();

  // Runs one step. False when there is nothing to do.
  bool step();

  const EngineMetrics& metrics();
  int waiting() const { return static_cast<int>(scheduler_.waiting().size()); }
  int max_context() const { return info_.max_context; }
  Residency& residency() { return residency_; }
  std::span<const Memory> memory() const { return pools_.views(); }
  Runner& runner() { return *runner_; }

 private:
  Result<int> check(Request& request) const;   // the token count it may reach; clamps what can be
  // A run being computed: what BatchRun does not say.
  struct Active {
    Run run;
    int first_row = 0, first_logit = 0, logits = 0;
    int known = 0, verify = 0;         // tokens before the step; rows at the run's end whose next token is drawn
    int first_draw = 0, scores = 0;    // in the draw queue: rows of the prompt first
    int start = 0;                     // computed before the step
    int drafts = 0;
    bool lazy = false;
    int state_in = -1;
    int accepted = 0;                  // drafts
    std::vector<int> slots;            // of eager verify rows
    std::vector<std::pair<int, int>> snapshots;  // (tokens, slot) written by this step
    bool boundary = false;             // the boundary slot is written by this step
    int boundary_tokens = 0;
    int boundary_slot = -1;            // of a step begun ahead: a slot of its own, which takes the boundary slot's place
    Event event;
  };

  // A step from its plan to its results.
  struct Step {
    bool begun_ahead = false;
    Clock::time_point mark;            // since when the host waits for the forward pass
    DraftStep drafting;
    std::size_t saves = 0;             // numbers in the builder, padding left out
    std::optional<Scratch> scratch;    // of `out`
    ModelOutput out;
  };
  bool begin_step(Clock::time_point now, Step& step);  // false: nothing ran
  ModelOutput forward(std::span<const TokenSource> drawn);
  std::span<const Drawn> draw(Step& step);

  // Brings admitted sequences' adapters into their slots; empties those of adapters that are gone.
  void page_adapters();
  // Of a step whose rows each draw one token, with nothing that depends on which: the next step can be enqueued before the
  // host has them, its rows taking their tokens on the device (engine_ahead.cpp). A sequence that ends in between has a row
  // too many there, which nobody looks at; what it gives back may be reused at once, as later work runs later.
  bool may_go_ahead() const;
  void go_ahead();
  bool take_ahead();                     // the step begun ahead becomes the current one, `active_` and `draw_`
  void forget_ahead(const Sequence& s);  // it ends

  // After a forward pass that found no memory: its layers may have run in part, so its sequences compute anew, in smaller steps.
  void shrink_step(const std::string& reason);
  void plan_step(Clock::time_point now);
  void take_drafts(DraftStep& step);
  // After a drafter's pass that found no memory: its step has no drafts, the next ones are smaller.
  void give_up_drafts(const std::string& reason);
  void build();
  void build_state(Active& a, std::vector<std::pair<int, int>>& saves, BatchRun& run);
  void queue_draws();
  void sample(const Tensor& logits, std::span<const Drawn> drawn);
  void queue_scores(const Active& a);
  void queue_draw(const Active& a, int i, const Constraint* constraint);
  void sample_run(Active& a, const Tensor& logits, std::span<const Drawn> drawn);
  void account(Active& a);
  void deliver(Active& a, Clock::time_point now);
  void finish(Sequence& s, Event event);
  bool is_end(const Sequence& s, int token) const;
  std::span<const int> end_tokens(const Sequence& s) const;
  void grow_scratch();
  std::string fingerprint() const;

  std::shared_ptr<const Model> model_;
  std::shared_ptr<Ops> ops_;
  ModelInfo info_;
  EngineOptions options_;
  std::vector<StateSpec> specs_;       // the model's layers, then its drafting head's, then the head's carry
  bool recurrent_ = false;
  ResidencyOptions residency_options_;
  MemoryPools pools_;
  Residency residency_;
  AdapterRegistry adapters_;
  std::unique_ptr<LoraBank> bank_;             // null: no adapters
  std::vector<std::uint64_t> in_bank_;         // generation in each of its slots; 0 = none
  std::vector<std::uint64_t> retired_;         // generations whose slots are to be emptied
  Scheduler scheduler_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Drafter> drafter_;
  DraftPolicy policy_;
  std::vector<std::unique_ptr<Sequence>> sequences_;

  StepPlan plan_;
  BatchBuilder builder_;
  std::vector<Active> active_;
  std::uint64_t draw_ = 0;               // of the current step, where it was begun apart from its end
  struct {
    std::vector<Active> active;          // empty: there is none; no sequence: it ended
    std::uint64_t draw = 0;
    std::string failed;                  // found no memory
  } ahead_;
  std::vector<TokenSource> drawn_;       // tokens of the batch being built that the host does not know
  DrawQueue queue_;
  std::vector<std::uint32_t> mask_;
  EngineMetrics metrics_;
  StepCost cost_;
  int shrunk_rows_ = 0, steps_since_shrink_ = 0;  // rows of the last step if it found no memory
};

}  // namespace strata
