#include "runtime/mtp_drafter.h"

#include <algorithm>

namespace strata {
namespace {

int argmax(std::span<const float> v) { return static_cast<int>(std::max_element(v.begin(), v.end()) - v.begin()); }

}  // namespace

MtpDrafter::MtpDrafter(const Model& head, std::span<const Memory> memory, Tensor carry, int max_sequences, Runner& runner)
    : head_(head), memory_(memory), carry_(carry), runner_(runner), states_(static_cast<std::size_t>(max_sequences)) {
  const DType dtype = runner.ops().activation();
  const std::int64_t rows = std::int64_t{max_sequences} * kTapeRows;
  store_buffer_ = runner.ops().allocate(bytes_of(dtype, rows * head.hidden_size));
  store_ = store_buffer_.view(dtype, {rows, head.hidden_size});
  for (int i = max_sequences - 1; i >= 0; --i) free_.push_back(i);
}

void MtpDrafter::copy(Tensor from, std::span<const int> pairs, Tensor to) {
  if (pairs.empty()) return;
  const auto n = static_cast<std::int64_t>(pairs.size() / 2);
  runner_.ops().save_rows(from, runner_.place(pairs, {n, 2}), to);
}

Tensor MtpDrafter::gather_hidden(Tensor step_hidden) {
  const Tensor h = runner_.ops().make({builder_.rows(), head_.hidden_size});
  copy(store_, copies_.store, h);
  copy(carry_, copies_.carry, h);
  copy(step_hidden, copies_.step, h);
  return h;
}

void MtpDrafter::add_entry_rows(Sequence& s, int first_entry, int count) {
  builder_.add({.tokens = std::span(s.tokens).subspan(static_cast<std::size_t>(first_entry), static_cast<std::size_t>(count)),
                .start = first_entry, .pages = s.pages, .adapter = -1});
}

int MtpDrafter::add_pending(Sequence& s) {
  const State& st = state(s);
  const int row = builder_.rows();
  add_entry_rows(s, st.first + 1, st.count);
  for (int i = 0; i < st.count; ++i) {
    copies_.store.push_back(s.draft_index * kTapeRows + i);
    copies_.store.push_back(row + i);
  }
  return row + st.count - 1;
}

void MtpDrafter::propose(std::span<const DraftWish> wishes) {
  const Scratch scratch(runner_.ops().arena());
  builder_.clear();
  copies_ = {};
  std::vector<DraftWish> going;
  int most = 0;
  for (const DraftWish& w : wishes) {
    w.sequence->drafts.clear();
    if (w.drafts <= 0 || w.sequence->draft_index < 0 || state(*w.sequence).count == 0) continue;
    going.push_back(w);
    most = std::max(most, w.drafts);
    builder_.want_logits(add_pending(*w.sequence));
  }
  if (going.empty()) return;
  Tensor hidden = gather_hidden({});
  for (int k = 1; k <= most; ++k) {
    const Batch batch = builder_.batch();
    const ModelOutput out = runner_.forward(head_, batch, memory_, hidden);
    const auto logits = runner_.fetch(out.logits);
    const auto V = static_cast<std::size_t>(head_.vocab_size);
    std::vector<int> rows;  // of the sequences that go on
    const auto logit_rows = std::span(batch.logit_rows.data<int>(), going.size());
    std::vector<DraftWish> next;
    for (std::size_t i = 0; i < going.size(); ++i) {
      Sequence& s = *going[i].sequence;
      if (k == 1) state(s).count = 0;
      s.drafts.push_back(argmax(logits.subspan(i * V, V)));
      if (going[i].drafts > k) {
        next.push_back(going[i]);
        rows.push_back(logit_rows[i]);
      }
    }
    going = std::move(next);
    if (going.empty()) return;
    hidden = runner_.ops().make({static_cast<std::int64_t>(rows.size()), head_.hidden_size});
    runner_.ops().gather_rows(hidden, out.hidden, runner_.place(rows, {static_cast<std::int64_t>(rows.size())}));
    builder_.clear();
    for (const DraftWish& w : going) {
      const Sequence& s = *w.sequence;
      builder_.want_logits(builder_.add({.tokens = std::span(s.drafts).last(1), .start = s.known() + k - 1, .pages = s.pages}));
    }
  }
}

void MtpDrafter::observe(const FinishedStep& step) {
  const Scratch scratch(runner_.ops().arena());
  if (step.saves.rows() > 0 && !step.saves.empty()) runner_.ops().save_rows(step.hidden, step.saves, carry_);
  builder_.clear();
  copies_ = {};
  std::vector<int> keep;  // (row of the step, row of the store)
  for (const StepRun& run : step.runs) {
    Sequence& s = *run.sequence;
    if (run.valid == 0) continue;
    const bool fresh = s.draft_index < 0;
    if (fresh) {
      STRATA_CHECK(!free_.empty(), "more than {} sequences draft", states_.size());
      s.draft_index = free_.back();
      free_.pop_back();
      state(s) = {};
    }
    State& st = state(s);
    // Short runs wait for propose(); long ones, and those whose pages may be shared before that, are entered now.
    const bool wait = !fresh && !run.ends && s.remaining() == 1 && run.valid <= kTapeRows;
    if (wait && st.count + run.valid <= kTapeRows) {
      remember(s, run, 0, run.valid, keep);
      continue;
    }
    if (st.count > 0) {
      add_pending(s);
      st.count = 0;
    } else if (run.start > 0 && run.state_in >= 0) {
      copies_.carry.insert(copies_.carry.end(), {run.state_in, builder_.rows()});
      add_entry_rows(s, run.start, 1);
    }
    if (wait) {
      remember(s, run, 0, run.valid, keep);
      continue;
    }
    if (run.valid > 1) {
      for (int i = 0; i + 1 < run.valid; ++i) {
        copies_.step.insert(copies_.step.end(), {run.first_row + i, builder_.rows() + i});
      }
      add_entry_rows(s, run.start + 1, run.valid - 1);
    }
    remember(s, run, run.valid - 1, 1, keep);
  }
  if (builder_.rows() > 0) {
    const Tensor hidden = gather_hidden(step.hidden);
    runner_.forward(head_, builder_.batch(), memory_, hidden);
  }
  copy(step.hidden, keep, store_);
}

void MtpDrafter::remember(Sequence& s, const StepRun& run, int from, int count, std::vector<int>& keep) {
  State& st = state(s);
  if (st.count == 0) st.first = run.start + from;
  for (int i = 0; i < count; ++i) {
    keep.push_back(run.first_row + from + i);
    keep.push_back(s.draft_index * kTapeRows + st.count++);
  }
}

void MtpDrafter::forget(Sequence& s) {
  if (s.draft_index >= 0) free_.push_back(s.draft_index);
  s.draft_index = -1;
}

}  // namespace strata
