// The middle of a step: from the plan to a batch, and from logits to tokens, states and events.
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/engine_core.h"
#include "runtime/philox.h"

namespace strata {
namespace {

TokenLogprob logprob_of(const Drawn& d) {
  TokenLogprob out{.token = d.token, .logprob = d.logprob, .top = {}};
  for (const auto& [value, token] : d.top) out.top.emplace_back(token, value);
  return out;
}

// Of the token at `position`; independent of the number that the token is drawn with.
bool accepts_by_chance(double probability, std::uint64_t seed, int position) {
  return philox(seed, static_cast<std::uint64_t>(position), 1)[0] < probability * 0x1p32;
}

}  // namespace

void EngineCore::build() {
  builder_.clear();
  drawn_.clear();
  active_.resize(plan_.runs.size());
  int logit = 0;
  std::vector<std::pair<int, int>> saves;  // (row of the run, slot)
  std::vector<int> tokens;
  for (std::size_t i = 0; i < plan_.runs.size(); ++i) {
    Active& a = active_[i];
    a = {.run = plan_.runs[i]};
    Sequence& s = *a.run.sequence;
    a.start = s.computed;
    a.drafts = std::min<int>(a.run.drafts, static_cast<int>(s.drafts.size()));
    s.drafts.resize(static_cast<std::size_t>(a.drafts));
    const auto known = std::span(s.tokens).subspan(static_cast<std::size_t>(s.computed), static_cast<std::size_t>(a.run.rows));
    saves.clear();
    BatchRun run{.tokens = known, .start = s.computed, .pages = s.pages, .adapter = s.adapter};
    build_state(a, saves, run);  // may lower a.drafts
    tokens.assign(known.begin(), known.end());
    tokens.insert(tokens.end(), s.drafts.begin(), s.drafts.begin() + a.drafts);
    run.tokens = tokens;
    a.first_row = builder_.add(run);
    for (std::size_t d = 0; d < std::min(s.draft_draws.size(), static_cast<std::size_t>(a.drafts)); ++d) {
      drawn_.push_back({a.first_row + a.run.rows + static_cast<int>(d), s.draft_draws[d]});
    }
    a.state_in = run.state_in;
    std::stable_sort(saves.begin(), saves.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    for (const auto& [row, slot] : saves) builder_.save(a.first_row + row, slot);
    if (recurrent_) {
      metrics_.state_reads += run.state_in >= 0 ? 1 : 0;
      metrics_.state_writes += saves.size() + (run.state_out >= 0 ? 1 : 0);
    }

    const bool all_rows = s.request.prompt_logprobs >= 0 && a.start < s.prompt_tokens;
    const bool samples = a.start + a.run.rows == s.known();
    a.first_logit = logit;
    const int first = all_rows ? 0 : samples ? a.run.rows - 1 : a.run.rows;
    for (int row = first; row < a.run.rows + a.drafts; ++row, ++logit) builder_.want_logits(a.first_row + row);
    a.logits = logit - a.first_logit;
    a.known = s.known();
    a.verify = samples ? 1 + a.drafts : 0;
  }
}

void EngineCore::build_state(Active& a, std::vector<std::pair<int, int>>& saves, BatchRun& run) {
  Sequence& s = *a.run.sequence;
  run.state_in = s.start_slot >= 0 ? s.start_slot : s.computed == 0 ? -1 : s.slot;
  if (!recurrent_) {
    saves.emplace_back(a.run.rows - 1, s.slot);  // an MTP head's carry
    return;
  }
  a.lazy = a.drafts > 0 && s.tape >= 0;
  if (a.lazy || s.tape_rows > 0) {
    run.tape = s.tape;
    run.replay = s.tape_rows;
    run.state_out = a.lazy && s.tape_rows > 0 ? s.slot : -1;
  }
  if (a.drafts > 0 && !a.lazy) {  // eager: a slot for every row
    for (int row = 0; row <= a.drafts; ++row) {
      const int slot = residency_.acquire_slot();
      if (slot < 0) break;
      a.slots.push_back(slot);
    }
    if (a.slots.size() < 2) {
      for (const int slot : a.slots) residency_.release_slot(slot);
      a.slots.clear();
      a.drafts = 0;
    } else {
      a.drafts = static_cast<int>(a.slots.size()) - 1;
      for (int row = 0; row <= a.drafts; ++row) saves.emplace_back(row, a.slots[static_cast<std::size_t>(row)]);
    }
  }
  if (a.drafts == 0) saves.emplace_back(a.run.rows - 1, s.slot);

  const int end = a.start + a.run.rows + a.drafts;
  if (!options_.prefix_cache) return;
  for (const int at : s.snapshots_at) {
    if (at <= a.start || at > a.start + a.run.rows) continue;
    const int slot = residency_.acquire_slot();
    if (slot < 0) continue;
    saves.emplace_back(at - a.start - 1, slot);
    a.snapshots.emplace_back(at, slot);
  }
  // The page boundary passed while generating; a chunk of prompt has its own wishes.
  const int boundary = end / kPageTokens * kPageTokens;
  if (boundary > a.start && boundary >= s.prompt_tokens) {
    if (s.boundary_slot < 0) s.boundary_slot = residency_.acquire_slot();
    if (s.boundary_slot >= 0) {
      saves.emplace_back(boundary - a.start - 1, s.boundary_slot);
      a.boundary = true;
      a.boundary_tokens = boundary;
    }
  }
}

void EngineCore::queue_draws() {
  // All rows that may be needed where the backend draws together, else only scores: sample_run() then draws as it goes.
  queue_.clear();
  for (Active& a : active_) {
    if (a.logits == 0) continue;
    a.first_draw = static_cast<int>(queue_.size());
    queue_scores(a);
    a.scores = static_cast<int>(queue_.size()) - a.first_draw;
    if (!runner_->draws_together()) continue;
    const Sequence& s = *a.run.sequence;
    const auto constraint = s.request.constraint && a.drafts > 0 ? s.request.constraint->clone() : s.request.constraint;
    for (int i = 0; i < a.verify; ++i) {
      if (i > 0 && constraint && !constraint->accept(s.drafts[static_cast<std::size_t>(i) - 1])) break;  // never drawn
      queue_draw(a, i, constraint.get());
    }
  }
}

void EngineCore::sample(const Tensor& logits, std::span<const Drawn> drawn) {
  for (Active& a : active_) {
    for (int i = 0; i < a.scores; ++i) {
      a.run.sequence->prompt_logprobs.push_back(logprob_of(drawn[static_cast<std::size_t>(a.first_draw + i)]));
    }
  }
  for (Active& a : active_) {
    if (a.logits > 0) sample_run(a, logits, drawn);
  }
}

void EngineCore::queue_scores(const Active& a) {  // rows whose next token is the prompt's
  const Sequence& s = *a.run.sequence;
  if (s.request.prompt_logprobs < 0) return;
  auto known = static_cast<int>(s.prompt_logprobs.size());
  for (int i = 0; i < a.logits; ++i) {
    const int next = a.start + a.run.rows + a.drafts - a.logits + i + 1;
    if (next >= s.prompt_tokens || known != next - 1) continue;
    queue_.score(a.first_logit + i, s.tokens[static_cast<std::size_t>(next)], s.request.prompt_logprobs);
    ++known;
  }
}

// The draw after `i` drafts that are taken to be right.
void EngineCore::queue_draw(const Active& a, int i, const Constraint* constraint) {
  const Sequence& s = *a.run.sequence;
  mask_.clear();
  if (constraint != nullptr) {
    mask_.resize((static_cast<std::size_t>(model_->vocab_size) + 31) / 32);
    constraint->allowed(mask_);
    for (const int t : s.ends) mask_[static_cast<std::size_t>(t) / 32] &= ~(1U << (t % 32));
    if (constraint->complete()) {
      for (const int t : end_tokens(s)) mask_[static_cast<std::size_t>(t) / 32] |= 1U << (t % 32);
    }
  }
  queue_.draw(a.first_logit + a.logits - a.verify + i,
              {.params = s.request.sampling, .history = s.history, .seed = s.seed, .position = static_cast<std::uint64_t>(a.known + i),
               .output_tokens = a.known - s.prompt_tokens + i, .end_tokens = end_tokens(s), .allowed = mask_,
               .drawn = std::span(s.drafts).first(static_cast<std::size_t>(i))},
              s.request.logprobs);
}

std::span<const int> EngineCore::end_tokens(const Sequence& s) const {
  return s.request.sampling.ignore_eos ? std::span<const int>(s.request.stop_tokens) : std::span<const int>(s.ends);
}

bool EngineCore::is_end(const Sequence& s, int token) const {
  const auto ends = end_tokens(s);
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

void EngineCore::sample_run(Active& a, const Tensor& logits, std::span<const Drawn> drawn) {
  Sequence& s = *a.run.sequence;
  for (int i = 0; i < a.verify && a.event.finish == FinishReason::kNone; ++i) {
    if (!runner_->draws_together()) {
      queue_.clear();
      queue_draw(a, i, s.request.constraint.get());
      drawn = runner_->draw(logits, queue_.rows());
    }
    const Drawn& d = drawn[runner_->draws_together() ? static_cast<std::size_t>(a.first_draw + a.scores + i) : 0];
    int token = d.token;
    if (token < 0 || !d.finite) {
      a.event.finish = FinishReason::kError;
      a.event.error = token < 0 && s.request.constraint ? "no token may follow under this request's constraints"
                                                        : "the model computed logits that are not finite";
      break;
    }
    if (s.request.logprobs >= 0) a.event.logprobs.push_back(logprob_of(d));
    bool draft_right = i < a.drafts && s.drafts[static_cast<std::size_t>(i)] == token;
    if (options_.simulate_acceptance && i < a.drafts) {
      draft_right = accepts_by_chance(*options_.simulate_acceptance, s.seed, a.known + i);
      if (draft_right) token = s.drafts[static_cast<std::size_t>(i)];
    }
    a.event.tokens.push_back(token);
    s.tokens.push_back(token);
    if (i < a.drafts) {
      ++metrics_.drafted_at[static_cast<std::size_t>(i)];
      metrics_.accepted_at[static_cast<std::size_t>(i)] += draft_right ? 1 : 0;
    }
    a.accepted += draft_right ? 1 : 0;
    if (is_end(s, token)) {
      a.event.finish = FinishReason::kStop;
    } else if (s.request.constraint != nullptr && !s.request.constraint->accept(token)) {
      a.event.finish = FinishReason::kError;
      a.event.error = "a token broke the constraint";
    } else if (s.request.constraint != nullptr && s.request.constraint->closed()) {
      a.event.finish = FinishReason::kStop;
    } else if (s.known() >= s.limit) {
      a.event.finish = FinishReason::kLength;
    }
    if (!draft_right) break;
  }
  for (const int token : a.event.tokens) {
    ++s.history.output[token];
    if (s.request.sampling.repetition_penalty != 1) ++s.history.seen[token];
  }
}

void EngineCore::account(Active& a) {
  Sequence& s = *a.run.sequence;
  // Tokens whose rows were right: the known ones, and the drafts that became tokens before the last one drawn.
  const int given = a.start + a.run.rows;
  const int computed = std::min(given + a.accepted, std::max(s.known() - 1, given));
  const int valid_drafts = computed - given;
  s.computed = computed;
  if (s.start_slot >= 0) {
    residency_.release_slot(s.start_slot);
    s.start_slot = -1;
  }
  if (a.lazy) {
    s.tape_rows = 1 + valid_drafts;
  } else {
    s.tape_rows = 0;
    for (std::size_t i = 0; i < a.slots.size(); ++i) {
      if (static_cast<int>(i) == valid_drafts) std::swap(s.slot, a.slots[i]);
    }
    for (const int slot : a.slots) residency_.release_slot(slot);
  }
  if (a.boundary_slot >= 0) {
    std::swap(s.boundary_slot, a.boundary_slot);
    if (a.boundary_slot >= 0) residency_.release_slot(std::exchange(a.boundary_slot, -1));
  }
  if (a.boundary) s.boundary_tokens = a.boundary_tokens <= s.computed ? a.boundary_tokens : 0;
  if (a.start < s.prompt_tokens || !a.snapshots.empty()) residency_.publish(s, false);
  for (const auto& [tokens, slot] : a.snapshots) residency_.keep_snapshot(s, tokens, slot);
  std::erase_if(s.snapshots_at, [&](int at) { return at <= s.computed; });
  s.usage.drafted_tokens += a.drafts;
  s.usage.accepted_tokens += a.accepted;
  s.usage.verify_steps += a.drafts > 0 ? 1 : 0;
  if (a.drafts > 0 && s.lora != nullptr) {
    auto& drafts = metrics_.adapter_drafts[s.lora->name];
    drafts.first += static_cast<std::uint64_t>(a.drafts);
    drafts.second += static_cast<std::uint64_t>(a.accepted);
  }
}

void EngineCore::deliver(Active& a, Clock::time_point now) {
  Sequence& s = *a.run.sequence;
  if (a.event.tokens.empty() && a.event.finish == FinishReason::kNone) return;
  const auto seconds = [&](Clock::time_point from) { return std::chrono::duration<double>(now - from).count(); };
  if (!a.event.tokens.empty()) {
    if (!s.first_token_sent) {
      metrics_.ttft.observe(seconds(s.arrived));
      metrics_.prompt_tokens += static_cast<std::uint64_t>(s.prompt_tokens);
      metrics_.cached_tokens += static_cast<std::uint64_t>(s.usage.cached_tokens);
      a.event.prompt_logprobs = std::move(s.prompt_logprobs);
      s.first_token_sent = true;
    } else {
      const double each = seconds(s.last_token) / static_cast<double>(a.event.tokens.size());
      for (std::size_t i = 0; i < a.event.tokens.size(); ++i) metrics_.inter_token.observe(each);
    }
    s.last_token = now;
    metrics_.output_tokens += a.event.tokens.size();
  }
  if (a.event.finish != FinishReason::kNone) return finish(s, std::move(a.event));
  a.event.id = s.id;
  s.usage.output_tokens = s.output_tokens();
  a.event.usage = s.usage;
  if (s.sink) s.sink(std::move(a.event));
}

}  // namespace strata
