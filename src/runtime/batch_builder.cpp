#include "runtime/batch_builder.h"

#include <algorithm>

namespace strata {
namespace {

Tensor view(std::vector<int>& v) { return {v.data(), DType::kI32, {static_cast<std::int64_t>(v.size())}}; }

}  // namespace

void BatchBuilder::clear() {
  for (auto* v : {&tokens_, &positions_, &sequence_, &start_, &kv_slots_, &state_in_, &saves_, &adapters_, &logit_rows_, &tape_,
                  &replay_, &state_out_, &pages_}) {
    v->clear();
  }
  first_.assign(1, 0);
  page_first_.assign(1, 0);
  longest_run_ = longest_context_ = 0;
}

int BatchBuilder::add(const BatchRun& run) {
  const int row = rows(), n = static_cast<int>(run.tokens.size()), context = run.start + n;
  STRATA_CHECK(n > 0, "a run of no rows");
  STRATA_CHECK(static_cast<int>(run.pages.size()) * kPageTokens >= context, "{} pages for {} tokens", run.pages.size(), context);
  tokens_.insert(tokens_.end(), run.tokens.begin(), run.tokens.end());
  for (int i = run.start; i < context; ++i) {
    positions_.push_back(i);
    kv_slots_.push_back(run.pages[static_cast<std::size_t>(i / kPageTokens)] * kPageTokens + i % kPageTokens);
  }
  sequence_.insert(sequence_.end(), run.tokens.size(), static_cast<int>(start_.size()));
  adapters_.insert(adapters_.end(), run.tokens.size(), run.adapter);
  first_.push_back(row + n);
  start_.push_back(run.start);
  state_in_.push_back(run.state_in);
  tape_.push_back(run.tape);
  replay_.push_back(run.replay);
  state_out_.push_back(run.state_out);
  const auto used = static_cast<std::size_t>((context + kPageTokens - 1) / kPageTokens);
  pages_.insert(pages_.end(), run.pages.begin(), run.pages.begin() + static_cast<std::ptrdiff_t>(used));
  page_first_.push_back(static_cast<int>(pages_.size()));
  longest_run_ = std::max(longest_run_, n);
  longest_context_ = std::max(longest_context_, context);
  return row;
}

void BatchBuilder::save(int row, int slot) {
  STRATA_CHECK(saves_.empty() || saves_[saves_.size() - 2] <= row, "save of row {} after row {}", row, saves_[saves_.size() - 2]);
  saves_.push_back(row);
  saves_.push_back(slot);
}

void BatchBuilder::want_logits(int row) { logit_rows_.push_back(row); }

void BatchBuilder::pad(const BatchShape& to) {
  const int added = to.sequences - static_cast<int>(start_.size());
  STRATA_CHECK(added >= 0 && to.rows - rows() >= added && (added > 0 || to.rows == rows()), "{} rows of {} sequences padded to {} of {}",
               rows(), start_.size(), to.rows, to.sequences);
  for (int s = 0; s < added; ++s) {
    const int n = (to.rows - rows()) / (added - s);
    tokens_.insert(tokens_.end(), static_cast<std::size_t>(n), 0);
    for (int i = 0; i < n; ++i) positions_.push_back(i);
    kv_slots_.insert(kv_slots_.end(), static_cast<std::size_t>(n), -1);
    sequence_.insert(sequence_.end(), static_cast<std::size_t>(n), static_cast<int>(start_.size()));
    adapters_.insert(adapters_.end(), static_cast<std::size_t>(n), -1);
    first_.push_back(rows());
    start_.push_back(0);
    state_in_.push_back(-1);
    tape_.push_back(-1);
    replay_.push_back(0);
    state_out_.push_back(-1);
    page_first_.push_back(static_cast<int>(pages_.size()));
    longest_run_ = std::max(longest_run_, n);
  }
  while (static_cast<int>(saves_.size()) < 2 * to.saves) saves_.insert(saves_.end(), {to.rows, -1});
  logit_rows_.resize(static_cast<std::size_t>(to.logit_rows), 0);
  STRATA_CHECK(longest_run_ <= to.longest_run && longest_context_ <= to.longest_context, "a run of {} of {} padded to {} of {}",
               longest_run_, longest_context_, to.longest_run, to.longest_context);
  longest_run_ = to.longest_run;
  longest_context_ = to.longest_context;
  STRATA_CHECK(shape() == to, "more saves or logits than {} and {}", to.saves, to.logit_rows);
}

BatchShape BatchBuilder::shape() const {
  return {.rows = rows(), .sequences = static_cast<int>(start_.size()), .logit_rows = static_cast<int>(logit_rows_.size()),
          .saves = static_cast<int>(saves_.size() / 2), .longest_run = longest_run_, .longest_context = longest_context_};
}

Batch BatchBuilder::batch() {
  const int S = static_cast<int>(start_.size());
  const int max_pages = (longest_context_ + kPageTokens - 1) / kPageTokens;
  page_table_.assign(static_cast<std::size_t>(S) * static_cast<std::size_t>(max_pages), 0);
  for (int s = 0; s < S; ++s) {
    const auto i = static_cast<std::size_t>(s);
    std::copy(pages_.begin() + page_first_[i], pages_.begin() + page_first_[i + 1],
              page_table_.begin() + static_cast<std::ptrdiff_t>(s) * max_pages);
  }
  Batch b;
  b.shape = shape();
  b.tokens = view(tokens_);
  b.positions = view(positions_);
  b.sequence = view(sequence_);
  b.first = view(first_);
  b.start = view(start_);
  b.page_table = view(page_table_).reshape({S, max_pages});
  b.kv_slots = view(kv_slots_);
  b.state_in = view(state_in_);
  b.saves = view(saves_).reshape({b.shape.saves, 2});
  b.logit_rows = view(logit_rows_);
  if (std::any_of(adapters_.begin(), adapters_.end(), [](int a) { return a >= 0; })) {
    logit_adapters_.clear();
    for (const int row : logit_rows_) logit_adapters_.push_back(adapters_[static_cast<std::size_t>(row)]);
    b.shape.adapters = true;
    b.adapters = view(adapters_);
    b.logit_adapters = view(logit_adapters_);
  }
  if (std::any_of(tape_.begin(), tape_.end(), [](int t) { return t >= 0; })) {
    b.tape = view(tape_);
    b.replay = view(replay_);
    b.state_out = view(state_out_);
  }
  return b;
}

}  // namespace strata
