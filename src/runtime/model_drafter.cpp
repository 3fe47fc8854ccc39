#include "runtime/model_drafter.h"

#include <algorithm>

#include "tensor/out_of_memory.h"

namespace strata {
namespace {

PoolSizes sizes_for(std::span<const StateSpec> specs, int max_sequences, int max_context, DType kv_dtype, std::size_t bytes) {
  const std::size_t page = std::max<std::size_t>(MemoryPools::page_bytes(specs, kv_dtype), 1);
  const int most = (max_context + kPageTokens - 1) / kPageTokens * max_sequences;
  return {.pages = static_cast<int>(std::clamp<std::size_t>(bytes / page, 1, static_cast<std::size_t>(most))),
          .slots = 1 + 2 * max_sequences, .tapes = 0};
}

}  // namespace

ModelDrafter::ModelDrafter(std::shared_ptr<const Model> model, Runner& runner, int max_sequences, int max_context, DType kv_dtype,
                           std::size_t memory_bytes)
    : model_(std::move(model)), runner_(runner), specs_(model_->states()),
      sizes_(sizes_for(specs_, max_sequences, std::min(max_context, model_->max_context), kv_dtype, memory_bytes)),
      pools_(specs_, sizes_, kv_dtype, runner.ops()), pages_(sizes_.pages), states_(static_cast<std::size_t>(max_sequences)) {
  for (int i = max_sequences - 1; i >= 0; --i) free_.push_back(i);
}

bool ModelDrafter::grow(State& st, int tokens) {
  if (tokens > model_->max_context) return false;
  while (static_cast<int>(st.pages.size()) * kPageTokens < tokens) {
    const int page = pages_.acquire();
    if (page < 0) return false;
    st.pages.push_back(page);
  }
  return true;
}

void ModelDrafter::propose(std::span<const DraftWish> wishes) {
  try {
    read_and_draft(wishes);
  } catch (const OutOfMemory&) {
    if (builder_.rows() > kFewRows) catch_up_rows_ = builder_.rows() / 2;
    steps_since_shrink_ = 0;
    throw;
  }
  if (++steps_since_shrink_ % kStepsToGrow == 0) catch_up_rows_ = std::min(2 * catch_up_rows_, kMostRows);
}

void ModelDrafter::read_and_draft(std::span<const DraftWish> wishes) {
  const Scratch scratch(runner_.ops().arena());
  builder_.clear();
  std::vector<DraftWish> going;
  int budget = catch_up_rows_, most = 0;
  for (const DraftWish& w : wishes) {
    Sequence& s = *w.sequence;
    s.drafts.clear();
    s.draft_draws.clear();
    if (w.drafts <= 0 || budget == 0) continue;
    if (s.draft_index < 0) {
      s.draft_index = free_.back();
      free_.pop_back();
    }
    State& st = state(s);
    if (!grow(st, s.known() + w.drafts)) continue;
    const int rows = std::min(s.known() - st.computed, budget);
    const int row = builder_.add({.tokens = std::span(s.tokens).subspan(static_cast<std::size_t>(st.computed), static_cast<std::size_t>(rows)),
                                  .start = st.computed, .pages = st.pages, .state_in = st.computed == 0 ? -1 : kept_slot(s)});
    builder_.save(row + rows - 1, kept_slot(s));
    budget -= rows;
    st.computed += rows;
    if (st.computed < s.known()) continue;  // goes on next time
    builder_.want_logits(row + rows - 1);
    going.push_back(w);
    most = std::max(most, w.drafts);
  }
  if (builder_.rows() == 0) return;
  drafting_.begin(runner_);
  std::vector<TokenSource> drawn;
  for (int k = 1; k <= std::max(most, 1); ++k) {
    runner_.pad(builder_);
    const ModelOutput out = runner_.forward(*model_, builder_.batch(), pools_.views(), {}, drawn);
    std::vector<Sequence*> wishing;
    for (const DraftWish& w : going) wishing.push_back(w.sequence);
    drafting_.draw(runner_, out.logits, wishing);
    std::erase_if(going, [&](const DraftWish& w) { return w.drafts <= k; });
    if (going.empty()) return;
    builder_.clear();
    drawn.clear();
    for (const DraftWish& w : going) {
      Sequence& s = *w.sequence;
      static constexpr int kNotKnownYet = 0;
      const int row = builder_.add({.tokens = std::span(&kNotKnownYet, 1), .start = s.known() + k - 1, .pages = state(s).pages,
                                    .state_in = k == 1 ? kept_slot(s) : draft_slot(s)});
      drawn.push_back({row, s.draft_draws.back()});
      builder_.save(row, draft_slot(s));
      builder_.want_logits(row);
    }
  }
}

void ModelDrafter::forget(Sequence& s) {
  drafting_.forget(s);
  if (s.draft_index < 0) return;
  State& st = state(s);
  for (const int page : st.pages) pages_.release(page);
  st = {};
  free_.push_back(s.draft_index);
  s.draft_index = -1;
}

}  // namespace strata
