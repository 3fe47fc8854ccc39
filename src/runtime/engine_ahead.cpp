// Steps begun ahead: the next decode step is built and enqueued while the host still waits for the tokens of
// the current one.
#include <algorithm>
#include <utility>

#include "runtime/engine_core.h"
#include "tensor/out_of_memory.h"

namespace strata {

std::span<const Drawn> EngineCore::draw(Step& step) {
  if (!step.begun_ahead) queue_draws();
  const bool go = may_go_ahead();
  if (!go && !step.begun_ahead) return runner_->draw(step.out.logits, queue_.rows());
  if (!step.begun_ahead) {
    draw_ = runner_->begin_draw(step.out.logits, queue_.rows());
    step.scratch.reset();  // what is enqueued from now on may write there; a shape's recording wants its
                           // scratch where it was
  }
  if (go) go_ahead();
  return runner_->finish_draw(draw_);
}

bool EngineCore::may_go_ahead() const {
  if (!runner_->draws_together() || !scheduler_.waiting().empty()) return false;
  // All that run have their row, and will have it again.
  if (active_.size() != scheduler_.running().size() ||
      static_cast<int>(active_.size()) > scheduler_.row_limit())
    return false;
  return std::all_of(active_.begin(), active_.end(), [](const Active& a) {
    const Request& r = a.run.sequence->request;
    const SamplingParams& p = r.sampling;
    const bool same_edits = p.repetition_penalty == 1 && p.presence_penalty == 0 && p.frequency_penalty == 0;
    return a.run.rows == 1 && a.drafts == 0 && a.verify == 1 && !a.run.sequence->followed &&
           r.constraint == nullptr && same_edits && r.logprobs <= kMostTopLogprobs;
  });
}

void EngineCore::go_ahead() {
  builder_.clear();
  queue_.clear();
  drawn_.clear();
  bool room = true;
  for (const Active& now : active_) {
    Sequence& s = *now.run.sequence;
    if (now.known + 1 >= s.limit) continue;  // ends with the token being drawn
    const int row = builder_.rows();
    Active& a = ahead_.active.emplace_back(Active{.run = {&s, 1, 0},
                                                  .first_row = row,
                                                  .first_logit = row,
                                                  .logits = 1,
                                                  .known = now.known + 1,
                                                  .verify = 1,
                                                  .first_draw = row,
                                                  .start = now.known});
    const int end = a.start + 1;
    room = residency_.grow(s, end);
    if (recurrent_ && options_.prefix_cache && end % kPageTokens == 0) {
      a.boundary = true;
      a.boundary_tokens = end;
      a.boundary_slot = residency_.acquire_slot();
      room = room && a.boundary_slot >= 0;
    }
    if (!room) break;
    static constexpr int kNotKnownYet = 0;
    a.state_in = s.slot;
    builder_.add({.tokens = std::span(&kNotKnownYet, 1),
                  .start = a.start,
                  .pages = s.pages,
                  .state_in = a.state_in,
                  .adapter = s.adapter});
    drawn_.push_back({row, draw_ + static_cast<std::uint64_t>(now.first_draw)});
    builder_.save(row, s.slot);
    if (a.boundary) builder_.save(row, a.boundary_slot);
    builder_.want_logits(row);
    queue_draw(a, 0, nullptr);
  }
  if (!room) {  // the next plan says who gives way
    for (const Active& a : ahead_.active) {
      if (a.boundary_slot >= 0) residency_.release_slot(a.boundary_slot);
    }
    ahead_.active.clear();
  }
  if (ahead_.active.empty()) return;
  runner_->begin(StepPart::kForward);
  try {
    const Scratch scratch(ops_->arena());
    const ModelOutput out = forward(drawn_);
    ahead_.draw = runner_->begin_draw(out.logits, queue_.rows());
  } catch (const OutOfMemory& e) {
    ahead_.failed = e.what();
  }
}

bool EngineCore::take_ahead() {
  active_.clear();
  active_.swap(ahead_.active);
  draw_ = ahead_.draw;
  std::erase_if(active_, [](const Active& a) { return a.run.sequence == nullptr; });
  if (active_.empty()) return false;
  if (drafter_) policy_.begin(static_cast<int>(active_.size()), 0);
  if (recurrent_) {
    for (const Active& a : active_) {
      ++metrics_.state_reads;
      metrics_.state_writes += a.boundary ? 2 : 1;
    }
  }
  return true;
}

void EngineCore::forget_ahead(const Sequence& s) {
  for (std::vector<Active>* step : {&active_, &ahead_.active}) {
    for (Active& a : *step) {
      if (a.run.sequence != &s) continue;
      if (a.boundary_slot >= 0) residency_.release_slot(std::exchange(a.boundary_slot, -1));
      if (step == &ahead_.active) a.run.sequence = nullptr;
    }
  }
}

}  // namespace strata
