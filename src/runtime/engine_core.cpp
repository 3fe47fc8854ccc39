#include "runtime/engine_core.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runtime/cache_file.h"
#include "runtime/model_drafter.h"
#include "runtime/mtp_drafter.h"
#include "runtime/ngram_drafter.h"
#include "runtime/padding.h"
#include "runtime/pool_sizes.h"
#include "tensor/out_of_memory.h"

namespace strata {
namespace {

double seconds_since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

// Depths of an MTP head with keys and values of their own: as deep as such heads are trained, but each costs a pass over every
// prompt, so that with a number of drafts chosen by cost only two pay (docs/speculation.md).
int mtp_depths(const EngineOptions& options) {
  constexpr int kTrained = 3, kByCost = 2;
  return options.draft_tokens > 0 ? std::min(options.draft_tokens, kTrained) : kByCost;
}

std::vector<StateSpec> all_specs(const Model& model, const EngineOptions& options) {
  std::vector<StateSpec> specs = model.states();
  if (options.speculate == "mtp") {
    if (!model.mtp) throw Error("this model has no MTP head to draft with (--speculate mtp); try ngram");
    const auto head = model.mtp->states();
    for (int d = 0; d < mtp_depths(options); ++d) specs.insert(specs.end(), head.begin(), head.end());
    for (int d = 0; d < mtp_depths(options); ++d) specs.emplace_back(Recurrent{.tensors = {Shape{model.hidden_size}}, .tape = {}});
  }
  return specs;
}

int context_of(const Model& model, const EngineOptions& options) {
  return options.max_context > 0 ? std::min(options.max_context, model.max_context) : model.max_context;
}

ResidencyOptions residency_options(const Model& model, const EngineOptions& options, std::span<const StateSpec> specs) {
  const auto layers = specs.first(model.layers.size());
  const bool drafts = options.speculate != "none", lazy = drafts && options.lazy_slots && can_replay(layers);
  ResidencyOptions r;
  r.prefix_cache = options.prefix_cache;
  r.needs_state = has_recurrent(layers);
  r.snapshot_interval_pages = options.snapshot_interval_pages;
  r.adapter_slots = options.max_loras;
  r.sizes = size_pools({.page_bytes = MemoryPools::page_bytes(specs, options.kv_dtype), .slot_bytes = MemoryPools::slot_bytes(specs),
                        .tape_bytes = MemoryPools::tape_bytes(specs), .max_context = context_of(model, options),
                        .max_sequences = options.max_sequences, .recurrent = r.needs_state,
                        .eager_slots = drafts && !lazy ? kTapeRows * 4 : 0, .tapes = lazy,
                        .pages = options.kv_pages, .slots = options.state_slots}, options.memory_bytes);
  return r;
}

// A device's kernels take any number of sequences in one pass.
int verify_sequences(const Ops& ops, const EngineOptions& options) {
  return ops.device() == Device::kCpu ? SchedulerOptions{}.verify_sequences : options.max_sequences;
}

StepLimits step_limits(const Model& model, const EngineOptions& options) {
  const int rows = options.max_batch_tokens + 2 * kTapeRows * options.max_sequences;  // a head also reads what waited, and its own drafts
  BatchShape most{.rows = rows, .sequences = options.max_sequences, .logit_rows = rows, .saves = rows,
                  .longest_run = kTapeRows, .longest_context = context_of(model, options)};
  most = padded_shape(most);
  return {.rows = most.rows, .sequences = most.sequences, .pages = most.longest_context / kPageTokens,
          .logit_rows = most.logit_rows, .vocab = model.vocab_size};
}

}  // namespace

EngineCore::EngineCore(std::shared_ptr<const Model> model, std::shared_ptr<Ops> ops, const ModelInfo& info,
                       const EngineOptions& options, const DrafterFactory& drafter)
    : model_(std::move(model)), ops_(std::move(ops)), info_(info), options_(options), specs_(all_specs(*model_, options)),
      recurrent_(has_recurrent(std::span(specs_).first(model_->layers.size()))),
      residency_options_(residency_options(*model_, options, specs_)), pools_(specs_, residency_options_.sizes, options.kv_dtype, *ops_),
      residency_(residency_options_),
      scheduler_(residency_, {.max_sequences = options.max_sequences, .max_batch_tokens = options.max_batch_tokens, .verify_sequences = verify_sequences(*ops_, options)}),
      runner_(std::make_unique<Runner>(*ops_, step_limits(*model_, options))), policy_({.fixed = options.draft_tokens, .least_passes = options.speculate == "mtp" ? mtp_depths(options) : 1, .reads_prompts = options.speculate == "mtp"}) {
  info_.max_context = context_of(*model_, options);
  if (options.draft_tokens < 0 || options.draft_tokens >= kTapeRows) {
    throw Error("--draft-tokens must be auto or 1 to {}, is {}", kTapeRows - 1, options.draft_tokens);
  }
  if (options.max_loras > 0) {
    bank_ = std::make_unique<LoraBank>(*model_, *ops_, LoraLimits{.adapters = options.max_loras, .rank = options.max_lora_rank});
    in_bank_.resize(static_cast<std::size_t>(options.max_loras));
  }
  if (runner_->clock() != nullptr) cost_ = StepCost(StepCost::kSteady);  // a device
  if (drafter) {
    drafter_ = drafter(*runner_);
  } else if (options.speculate == "mtp") {
    const auto depths = static_cast<std::size_t>(mtp_depths(options));
    const std::size_t heads = depths * model_->mtp->layers.size();
    const auto views = pools_.views().subspan(model_->layers.size());
    std::vector<Tensor> carries;
    for (std::size_t d = 0; d < depths; ++d) carries.push_back(std::get<StateView>(views[heads + d]).tensors[0]);
    drafter_ = std::make_unique<MtpDrafter>(*model_->mtp, views.first(heads), std::move(carries), options.max_sequences, *runner_);
  } else if (options.speculate == "ngram") {
    drafter_ = std::make_unique<NgramDrafter>(options.max_sequences);
  } else if (options.speculate == "draft") {
    STRATA_CHECK(options.draft_model != nullptr, "speculate is draft and there is no draft model");
    if (options.draft_model->vocab_size != model_->vocab_size) {
      throw Error("the draft model's vocabulary has {} tokens, the model's {}", options.draft_model->vocab_size, model_->vocab_size);
    }
    drafter_ = std::make_unique<ModelDrafter>(options.draft_model, *runner_, options.max_sequences, info_.max_context,
                                              options.kv_dtype, options.memory_bytes / 4);
  } else if (options.speculate != "none") {
    throw Error("--speculate must be none, mtp, ngram or draft=PATH, is '{}'", options.speculate);
  }
  const std::vector<double> latency = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
  for (Histogram* h : {&metrics_.ttft, &metrics_.inter_token, &metrics_.queue, &metrics_.step}) *h = Histogram(latency);
  metrics_.drafted_at.resize(kTapeRows - 1);
  metrics_.accepted_at.resize(kTapeRows - 1);
  if (runner_->device() != nullptr) grow_scratch();
}

// Scratch for the largest step is there before the first one, so that steps allocate nothing: all rows of padding, writing nowhere.
void EngineCore::grow_scratch() {
  const int rows = options_.max_batch_tokens;
  builder_.clear();
  builder_.pad({.rows = rows, .sequences = 1, .logit_rows = std::min(rows, options_.max_sequences * kTapeRows), .saves = 0,
                .longest_run = rows, .longest_context = std::max(rows, kPageTokens)});
  const Scratch scratch(ops_->arena());
  runner_->forward(*model_, builder_.batch(), pools_.views().first(model_->layers.size()));
  runner_->begin(StepPart::kDraft);
}

std::string EngineCore::fingerprint() const {
  std::string f = fmt::format("{} {} {} kv {} speculate {}", info_.name, info_.architecture, info_.vocab_size, name(options_.kv_dtype), options_.speculate);
  for (const Memory& m : pools_.views()) {
    if (const auto* kv = std::get_if<KvView>(&m)) f += fmt::format(" {}", kv->k.rows_from(0, 1).shape().to_string());
    if (const auto* s = std::get_if<StateView>(&m)) {
      for (const Tensor& t : s->tensors) f += " " + t.rows_from(0, 1).shape().to_string();
    }
  }
  return f;
}

void EngineCore::restore_cache() {
  if (options_.cache_file.empty() || !options_.prefix_cache || !std::filesystem::exists(options_.cache_file)) return;
  try {
    const int pages = strata::restore_cache(options_.cache_file, fingerprint(), residency_.cache(), residency_.page_pool(),
                                            residency_.slot_pool(), pools_.views(), *ops_);
    log::info("prefix cache: {} pages restored from {}", pages, options_.cache_file.string());
  } catch (const Error& e) {
    log::warn("prefix cache not restored: {}", e.what());
  }
}

void EngineCore::save_cache() {
  if (options_.cache_file.empty() || !options_.prefix_cache) return;
  try {
    // Roots of adapters name a load of this process: "adapter#generation\nsalt".
    const int pages = strata::save_cache(options_.cache_file, fingerprint(), residency_.cache(), pools_.views(), *ops_,
                                         [](const std::string& root) { return root.starts_with('\n'); });
    log::info("prefix cache: {} pages saved to {}", pages, options_.cache_file.string());
  } catch (const std::exception& e) {
    log::error("prefix cache not saved: {}", e.what());
  }
}

Result<std::monostate> EngineCore::load_adapter(const std::string& name, const std::filesystem::path& folder, bool replace) {
  if (bank_ == nullptr) return bad_request("adapters are off (--max-loras 0)", "lora_name");
  if (name.empty()) return bad_request("an adapter needs a name", "lora_name");
  const auto taken = [&] { return bad_request(fmt::format("there is an adapter '{}' already", name), "lora_name"); };
  if (!replace && adapters_.find(name) != nullptr) return taken();
  try {
    LoraAdapter weights = load_lora_adapter(folder);
    bank_->check(weights);
    if (!adapters_.add(name, std::move(weights), replace)) return taken();
  } catch (const Error& e) {
    return bad_request(e.what(), "lora_path");
  }
  return {};
}

void EngineCore::page_adapters() {
  if (bank_ == nullptr) return;
  for (const std::uint64_t generation : adapters_.take_retired()) retired_.push_back(generation);
  std::erase_if(retired_, [&](std::uint64_t generation) {
    bool pinned = false;
    const int slot = residency_.adapters().empty(generation, pinned);
    if (slot >= 0) {
      bank_->drop(slot);
      in_bank_[static_cast<std::size_t>(slot)] = 0;
    }
    return !pinned;
  });
  for (Sequence* s : plan_.admitted) {
    if (s->lora == nullptr) continue;
    std::uint64_t& held = in_bank_[static_cast<std::size_t>(s->adapter)];
    if (held == s->lora->generation) continue;
    held = 0;
    try {
      bank_->put(s->adapter, s->lora->weights);
      held = s->lora->generation;
      ++metrics_.adapter_loads;
    } catch (const Error& e) {  // no memory for it
      std::erase_if(plan_.runs, [&](const Run& r) { return r.sequence == s; });
      finish(*s, {.finish = FinishReason::kError, .error = e.what()});
    }
  }
}

EngineCore::~EngineCore() { abort_all("shutting down"); }

void EngineCore::add(std::unique_ptr<Sequence> sequence) {
  Sequence& s = *sequence;
  s.prompt_tokens = s.known();
  s.usage.prompt_tokens = s.prompt_tokens;
  if (s.request.sampling.repetition_penalty != 1) {
    for (const int t : s.tokens) ++s.history.seen[t];
  }
  sequences_.push_back(std::move(sequence));
  scheduler_.add(&s);
}

void EngineCore::abort(RequestId id) {
  for (const auto& s : sequences_) {
    if (s->id == id) return finish(*s, {.finish = FinishReason::kAborted});
  }
}

void EngineCore::abort_all(const std::string& reason) {
  while (!sequences_.empty()) {
    finish(*sequences_.back(), {.finish = reason.empty() ? FinishReason::kAborted : FinishReason::kError, .error = reason});
  }
}

void EngineCore::finish(Sequence& s, Event event) {
  static constexpr const char* kOutcome[] = {"running", "stop", "length", "aborted", "deadline", "error"};
  ++metrics_.requests[kOutcome[static_cast<int>(event.finish)]];
  forget_ahead(s);
  residency_.publish(s, true);
  residency_.release(s);
  if (drafter_) drafter_->forget(s);
  policy_.finished(s);
  scheduler_.remove(&s);
  event.id = s.id;
  s.usage.output_tokens = s.output_tokens();
  event.usage = s.usage;
  const auto at = std::find_if(sequences_.begin(), sequences_.end(), [&](const auto& p) { return p.get() == &s; });
  const auto owned = std::move(*at);
  sequences_.erase(at);
  if (owned->sink) owned->sink(std::move(event));
}

bool EngineCore::step() {
  const auto now = Clock::now();
  for (std::size_t i = sequences_.size(); i-- > 0;) {
    if (sequences_[i]->request.deadline && *sequences_[i]->request.deadline <= now) {
      finish(*sequences_[i], {.finish = FinishReason::kDeadline});
    }
  }
  if (sequences_.empty()) return false;
  Step step;
  step.mark = now;
  step.begun_ahead = take_ahead();
  if (!step.begun_ahead && !begin_step(now, step)) return true;
  DraftStep& drafting = step.drafting;
  const bool together = runner_->draws_together();
  std::span<const Drawn> drawn;
  if (together) drawn = draw(step);  // waits for the forward pass
  drafting.forward = seconds_since(step.mark);
  metrics_.step_seconds["forward"] += drafting.forward;

  auto mark = Clock::now();
  if (!together) drawn = draw(step);
  sample(step.out.logits, drawn);
  runner_->begin(StepPart::kDraft);
  std::vector<StepRun> runs;
  std::vector<StepSave> kept;
  int rows = 0, verify_rows = 0;
  double before = 0;  // tokens before each prefill row, summed
  for (Active& a : active_) {
    Sequence& s = *a.run.sequence;
    account(a);
    rows += a.run.rows + a.drafts;
    if (s.followed) runs.push_back({.sequence = &s, .first_row = a.first_row, .rows = a.run.rows + a.drafts, .valid = s.computed - a.start,
                                    .start = a.start, .state_in = a.state_in, .ends = a.event.finish != FinishReason::kNone});
    if (a.run.rows > 1) {
      kept.push_back({&s, a.start + a.run.rows - 1, s.slot});
      for (const auto& [tokens, slot] : a.snapshots) kept.push_back({&s, tokens - 1, slot});
      if (a.boundary) kept.push_back({&s, a.boundary_tokens - 1, s.boundary_slot});
    }
    if (a.run.rows == 1 && a.logits > 0) {
      ++drafting.sequences;
      drafting.drafting += a.drafts > 0 ? 1 : 0;
      policy_.accepted(s, a.run.drafts > 0, std::min(a.accepted + 1, a.drafts), a.accepted);
    } else {
      drafting.prefill_rows += a.run.rows;
      before += a.run.rows * (a.start + 0.5 * (a.run.rows - 1));
      drafting.followed_rows += s.followed ? a.run.rows : 0;
    }
    if (a.drafts > 0) verify_rows += a.drafts + 1;
    drafting.drafts += a.drafts;
    drafting.accepted += a.accepted;
  }
  metrics_.step_seconds["sample"] += seconds_since(mark);
  if (drafter_) {
    mark = Clock::now();
    if (!runs.empty()) {
      const Shape pairs{static_cast<std::int64_t>(step.saves / 2), 2};
      try {
        drafter_->observe({.runs = runs, .kept = kept, .hidden = step.out.hidden, .saves = runner_->place(builder_.saves().first(step.saves), pairs)});
      } catch (const OutOfMemory& e) {
        give_up_drafts(e.what());
      }
    }
    drafting.observe = seconds_since(mark);
    metrics_.step_seconds["draft"] += drafting.propose + drafting.observe;
    policy_.record(drafting);
  }
  if (const DeviceClock* clock = runner_->clock()) {
    runner_->begin(StepPart::kDraft);  // what observing enqueued ends here
    metrics_.device_seconds["forward"] = clock->seconds(StepPart::kForward);
    metrics_.device_seconds["draft"] = clock->seconds(StepPart::kDraft);
  }

  ++metrics_.steps;
  metrics_.computed_tokens += static_cast<std::uint64_t>(rows);
  metrics_.drafted += static_cast<std::uint64_t>(drafting.drafts);
  metrics_.accepted += static_cast<std::uint64_t>(drafting.accepted);
  metrics_.verify_steps += verify_rows > 0 ? 1 : 0;
  metrics_.verify_rows += static_cast<std::uint64_t>(verify_rows);
  const auto done = Clock::now();
  const double seconds = std::chrono::duration<double>(done - now).count();
  cost_.record(drafting.sequences, drafting.prefill_rows, before, seconds);
  constexpr int kStepsToGrow = 64;  // memory may have come back
  shrunk_rows_ = 0;
  if (++steps_since_shrink_ % kStepsToGrow == 0) scheduler_.limit_rows(2 * scheduler_.row_limit());
  metrics_.step.observe(seconds);
  for (Active& a : active_) deliver(a, done);
  if (const std::string reason = std::exchange(ahead_.failed, {}); !reason.empty() && take_ahead()) shrink_step(reason);
  return true;
}

bool EngineCore::begin_step(Clock::time_point now, Step& step) {
  plan_step(now);
  if (plan_.runs.empty()) {
    STRATA_CHECK(!plan_.preempted.empty() || !scheduler_.running().empty(), "{} sequences wait and none fits", sequences_.size());
    return false;
  }
  page_adapters();
  if (plan_.runs.empty()) return false;
  metrics_.split_steps += plan_.drafts_split ? 1 : 0;
  metrics_.step_seconds["schedule"] += seconds_since(now);

  take_drafts(step.drafting);
  runner_->begin(StepPart::kForward);

  step.mark = Clock::now();
  build();
  step.saves = builder_.saves().size();  // padding comes behind
  metrics_.step_seconds["batch"] += seconds_since(step.mark);
  step.mark = Clock::now();
  step.scratch.emplace(ops_->arena());
  try {
    step.out = forward(drawn_);
  } catch (const OutOfMemory& e) {
    shrink_step(e.what());
    return false;
  }
  if (!drawn_.empty()) {  // the model's pass is enqueued behind the drafter's
    drafter_->settle();
    const auto settled = Clock::now();
    step.drafting.propose += std::chrono::duration<double>(settled - step.mark).count();
    step.mark = settled;
  }
  return true;
}

ModelOutput EngineCore::forward(std::span<const TokenSource> drawn) {
  runner_->pad(builder_);
  Batch batch = builder_.batch();
  if (batch.shape.adapters) batch.lora = &bank_->tables();
  return runner_->forward(*model_, batch, pools_.views().first(model_->layers.size()), {}, drawn);
}

void EngineCore::shrink_step(const std::string& reason) {
  int rows = 0;
  for (Active& a : active_) {
    rows += a.run.rows + a.drafts;
    for (const int slot : a.slots) residency_.release_slot(slot);
    for (const auto& [tokens, slot] : a.snapshots) residency_.release_slot(slot);
    if (a.boundary_slot >= 0) {
      residency_.release_slot(std::exchange(a.boundary_slot, -1));
    } else if (a.boundary) {
      a.run.sequence->boundary_tokens = 0;  // overwritten in part
    }
  }
  log::warn("a step of {} rows found no memory and is done again in smaller ones: {}", rows, reason);
  for (const Active& a : active_) {
    Sequence& s = *a.run.sequence;
    if (rows == 1 && shrunk_rows_ == 1) return finish(s, {.finish = FinishReason::kError, .error = reason});
    if (drafter_) drafter_->forget(s);
    scheduler_.requeue(s);
  }
  scheduler_.limit_rows(rows / 2);
  shrunk_rows_ = rows;
  steps_since_shrink_ = 0;
}

void EngineCore::plan_step(Clock::time_point now) {
  const auto& running = scheduler_.running();
  const auto followed = [](const Sequence* s) { return s->followed; };
  int decoding = 0, drafting = 0;
  for (const Sequence* s : running) {
    if (s->remaining() != 1) continue;
    ++decoding;
    drafting += s->followed ? 1 : 0;
  }
  if (drafter_) {
    policy_.begin(decoding, drafting);
    if (policy_.let_go()) {
      for (Sequence* s : running) {
        if (std::exchange(s->followed, false)) drafter_->forget(*s);
      }
    }
  }
  scheduler_.plan(now, cost_.limit(decoding), [&](const Sequence& s) { return drafter_ && s.followed ? policy_.wish(s) : 0; }, plan_);
  for (Sequence* s : plan_.preempted) {
    ++metrics_.preemptions;
    if (drafter_) drafter_->forget(*s);
  }
  auto others = std::count_if(running.begin(), running.end(), followed);
  for (Sequence* s : plan_.admitted) others -= s->followed ? 1 : 0;
  for (Sequence* s : plan_.admitted) {
    metrics_.queue.observe(std::chrono::duration<double>(now - s->arrived).count());
    s->usage.cached_tokens = std::min(s->computed, s->prompt_tokens);
    s->followed = drafter_ && policy_.follow(*s, static_cast<int>(running.size()), static_cast<int>(others));
    others += s->followed ? 1 : 0;
  }
}

void EngineCore::take_drafts(DraftStep& step) {
  if (!drafter_) return;
  const auto mark = Clock::now();
  std::vector<DraftWish> wishes;
  for (const Run& r : plan_.runs) {
    r.sequence->drafts.clear();
    r.sequence->draft_draws.clear();
    if (r.drafts > 0) wishes.push_back({r.sequence, r.drafts});
    step.passes = std::max(step.passes, r.drafts);
  }
  try {
    if (!wishes.empty()) drafter_->propose(wishes);
    if (!runner_->draws_together()) drafter_->settle();
  } catch (const OutOfMemory& e) {
    give_up_drafts(e.what());
  }
  step.propose = seconds_since(mark);
}

void EngineCore::give_up_drafts(const std::string& reason) {
  int rows = 0;
  for (const Run& r : plan_.runs) {
    rows += r.rows + r.drafts;
    r.sequence->drafts.clear();
    r.sequence->draft_draws.clear();
    drafter_->forget(*r.sequence);
  }
  log::warn("the drafter found no memory beside a step of {} rows, which has no drafts; the next ones are smaller: {}", rows, reason);
  // Not so small that the model itself has to wait.
  scheduler_.limit_rows(std::max({rows / 2, kPageTokens, static_cast<int>(scheduler_.running().size())}));
  steps_since_shrink_ = 0;
}

const EngineMetrics& EngineCore::metrics() {
  EngineMetrics& m = metrics_;
  m.running = static_cast<int>(scheduler_.running().size());
  m.waiting = static_cast<int>(scheduler_.waiting().size());
  m.pages_total = residency_.pages().total();
  m.pages_cached = residency_.cache().evictable_pages();
  m.pages_used = residency_.pages().held() - m.pages_cached;
  m.slots_total = residency_.slots().total() - 1;  // the dummy is nobody's
  m.slots_cached = residency_.cache().snapshots();
  m.adapters_in_use = residency_.adapters().pinned();
  m.slots_used = residency_.slots().held() - 1 - m.slots_cached;
  m.cache_queries_tokens = residency_.counters().query_tokens;
  m.cache_hit_tokens = residency_.counters().hit_tokens;
  m.cache_misses = residency_.counters().misses;
  return m;
}

}  // namespace strata
