#include "runtime/mtp_drafter.h"

#include <algorithm>

namespace strata {
namespace {

void pair(std::vector<int>& pairs, int from, int to) { pairs.insert(pairs.end(), {from, to}); }

}  // namespace

MtpDrafter::MtpDrafter(const Model& head, std::span<const Memory> memory, std::vector<Tensor> carries, int max_sequences, Runner& runner)
    : head_(head), memory_(memory), carries_(std::move(carries)), runner_(runner), states_(static_cast<std::size_t>(max_sequences)) {
  STRATA_CHECK(memory.size() == carries_.size() * head.layers.size(), "memory of {} layers for {} depths", memory.size(), carries_.size());
  const DType dtype = runner.ops().activation();
  const auto make = [&](Buffer& buffer, std::int64_t rows) {
    buffer = runner.ops().allocate(bytes_of(dtype, rows * head.hidden_size));
    return buffer.view(dtype, {rows, head.hidden_size});
  };
  store_ = make(store_buffer_, std::int64_t{max_sequences} * kTapeRows);
  const Tensor last = make(last_buffer_, std::int64_t{max_sequences} * depths());
  for (int d = 0; d < depths(); ++d) last_.push_back(last.rows_from(std::int64_t{d} * max_sequences, max_sequences));
  for (int i = max_sequences - 1; i >= 0; --i) free_.push_back(i);
}

void MtpDrafter::copy(Tensor from, const Pairs& pairs, Tensor to) {
  if (pairs.empty()) return;
  runner_.ops().save_rows(from, runner_.place(pairs, {static_cast<std::int64_t>(pairs.size() / 2), 2}), to);
}

void MtpDrafter::admit(Sequence& s) {
  STRATA_CHECK(!free_.empty(), "more than {} sequences draft", states_.size());
  s.draft_index = free_.back();
  free_.pop_back();
  state(s) = {};
}

void MtpDrafter::build(std::vector<Entering>& entering, int pass) {
  builder_.clear();
  drawn_.clear();
  std::vector<int> tokens;
  for (Entering& e : entering) {
    const Sequence& s = *e.sequence;
    // The last draft wished for leads nowhere, and nothing is drafted when nothing is wished.
    auto drafts = std::span(s.draft_draws).first(static_cast<std::size_t>(std::max(0, std::min(pass, e.wish - 1))));
    e.before = e.row + (pass < depths() ? 0 : e.rows - 1);
    int start = e.first;
    if (pass < depths()) {
      const auto known = std::span(s.tokens).subspan(static_cast<std::size_t>(e.first), static_cast<std::size_t>(e.count));
      tokens.assign(known.begin(), known.end());
    } else {
      tokens.clear();
      drafts = drafts.last(1);
      start = s.known() + pass - 1;
    }
    tokens.resize(tokens.size() + drafts.size());  // not known yet
    e.row = builder_.add({.tokens = tokens, .start = start, .pages = s.pages});
    e.rows = static_cast<int>(tokens.size());
    int row = e.row + e.rows - static_cast<int>(drafts.size());
    for (const std::uint64_t draft : drafts) drawn_.push_back({row++, draft});
    if (e.wish > pass) builder_.want_logits(e.row + e.rows - 1);
  }
  runner_.pad(builder_);
}

Tensor MtpDrafter::chain(const std::vector<Entering>& entering, int pass, Tensor h1, Tensor before) {
  const Tensor h = runner_.ops().make({builder_.rows(), head_.hidden_size});
  Pairs from_before, from_last, from_carry, from_h1;
  for (const Entering& e : entering) {
    if (pass >= depths()) {
      pair(from_before, e.before, e.row);
      continue;
    }
    if (e.cold) pair(from_h1, e.before, e.row);  // pass 0 and the others begin a sequence at the same row of their own
    else if (e.carry_slot >= 0) pair(from_carry, e.carry_slot, e.row);
    else pair(from_last, e.sequence->draft_index, e.row);
    for (int i = 1; i < e.rows; ++i) pair(from_before, e.before + i - 1, e.row + i);
  }
  copy(before, from_before, h);
  if (pass < depths()) {
    copy(h1, from_h1, h);
    copy(last_[static_cast<std::size_t>(pass) - 1], from_last, h);
    copy(carries_[static_cast<std::size_t>(pass)], from_carry, h);
  }
  return h;
}

void MtpDrafter::propose(std::span<const DraftWish> wishes) {
  const Scratch scratch(runner_.ops().arena());
  std::vector<Entering> entering;
  Pairs pending;
  int passes = depths();
  for (const DraftWish& w : wishes) {
    Sequence& s = *w.sequence;
    s.drafts.clear();
    s.draft_draws.clear();
    if (w.drafts <= 0 || s.draft_index < 0 || state(s).count == 0) continue;
    const State& st = state(s);
    entering.push_back({.sequence = &s, .first = st.first + 1, .count = st.count, .wish = w.drafts});
    passes = std::max(passes, w.drafts);
  }
  if (entering.empty()) return;
  drafting_.begin(runner_);
  Tensor h1, before;
  for (int pass = 0; pass < passes; ++pass) {
    if (pass >= depths()) std::erase_if(entering, [&](const Entering& e) { return e.wish <= pass; });
    build(entering, pass);
    if (pass == 0) {
      h1 = runner_.ops().make({builder_.rows(), head_.hidden_size});
      for (const Entering& e : entering) {
        for (int i = 0; i < e.count; ++i) pair(pending, e.sequence->draft_index * kTapeRows + i, e.row + i);
        state(*e.sequence).count = 0;
      }
      copy(store_, pending, h1);
    }
    const Tensor hidden = pass == 0 ? h1 : chain(entering, pass, h1, before);
    const ModelOutput out = runner_.forward(head_, builder_.batch(), memory(std::min(pass, depths() - 1)), hidden, drawn_);
    Pairs last;
    std::vector<Sequence*> wishing;
    for (const Entering& e : entering) {
      if (e.wish > pass) wishing.push_back(e.sequence);
      pair(last, e.row + e.count - 1, e.sequence->draft_index);
    }
    drafting_.draw(runner_, out.logits, wishing);
    if (pass + 1 < depths()) copy(out.hidden, last, last_[static_cast<std::size_t>(pass)]);
    before = out.hidden;
  }
}

void MtpDrafter::observe(const FinishedStep& step) {
  const Scratch scratch(runner_.ops().arena());
  // A saved row that is entered below gets each depth's own carry there; the others make do with H_1.
  if (!step.saves.empty()) {
    for (const Tensor& carry : carries_) runner_.ops().save_rows(step.hidden, step.saves, carry);
  }
  std::vector<Entering> entering;
  Pairs store, carry, from_step, keep;
  for (const StepRun& run : step.runs) {
    Sequence& s = *run.sequence;
    if (run.valid == 0) continue;
    const bool fresh = s.draft_index < 0;
    if (fresh) admit(s);
    State& st = state(s);
    // Short runs wait for propose(); long ones, and those whose pages may be shared before that, are entered now.
    const bool wait = !fresh && !run.ends && s.remaining() == 1 && run.valid <= kTapeRows;
    if (wait && st.count + run.valid <= kTapeRows) {
      remember(s, run, 0, run.valid, keep);
      continue;
    }
    int row = entering.empty() ? 0 : entering.back().row + entering.back().count;
    Entering e{.sequence = &s, .first = st.first + 1, .count = st.count, .row = row};
    if (st.count > 0) {
      for (int i = 0; i < st.count; ++i) pair(store, s.draft_index * kTapeRows + i, row++);
      st.count = 0;
    } else if (run.start > 0 && run.state_in >= 0) {
      e.first = run.start;
      e.count = 1;
      e.carry_slot = run.state_in;
      pair(carry, run.state_in, row++);
    } else {
      e.first = run.start + 1;
      e.cold = true;
    }
    if (!wait) {
      for (int i = 0; i + 1 < run.valid; ++i) pair(from_step, run.first_row + i, row++);
      e.count += run.valid - 1;
    }
    remember(s, run, wait ? 0 : run.valid - 1, wait ? run.valid : 1, keep);
    if (e.count > 0) entering.push_back(e);
  }
  if (!entering.empty()) {
    Tensor h1, before;
    for (int pass = 0; pass < depths(); ++pass) {
      build(entering, pass);
      if (pass == 0) {
        h1 = runner_.ops().make({builder_.rows(), head_.hidden_size});
        copy(store_, store, h1);
        copy(carries_[0], carry, h1);
        copy(step.hidden, from_step, h1);
      }
      const Tensor hidden = pass == 0 ? h1 : chain(entering, pass, h1, before);
      const ModelOutput out = runner_.forward(head_, builder_.batch(), memory(pass), hidden);
      before = out.hidden;
      if (pass + 1 == depths()) break;
      Pairs last, carries;
      for (const Entering& e : entering) pair(last, e.row + e.count - 1, e.sequence->draft_index);
      copy(out.hidden, last, last_[static_cast<std::size_t>(pass)]);
      for (const StepSave& save : step.kept) {
        for (const Entering& e : entering) {
          const int at = save.token - e.first;
          if (e.sequence == save.sequence && at >= 0 && at < e.count) pair(carries, e.row + at, save.slot);
        }
      }
      copy(out.hidden, carries, carries_[static_cast<std::size_t>(pass) + 1]);
    }
  }
  copy(step.hidden, keep, store_);
}

void MtpDrafter::remember(const Sequence& s, const StepRun& run, int from, int count, Pairs& keep) {
  State& st = state(s);
  if (st.count == 0) st.first = run.start + from;
  for (int i = 0; i < count; ++i) pair(keep, run.first_row + from + i, s.draft_index * kTapeRows + st.count++);
}

void MtpDrafter::forget(Sequence& s) {
  drafting_.forget(s);
  if (s.draft_index >= 0) free_.push_back(s.draft_index);
  s.draft_index = -1;
}

}  // namespace strata
