#include "runtime/draft_chain.h"

namespace strata {

void DraftChain::begin(Runner& runner) {
  runner.begin_chain();
  drafts_.clear();
}

void DraftChain::draw(Runner& runner, const Tensor& logits, std::span<Sequence* const> sequences) {
  std::uint64_t draw = runner.begin_best(logits, static_cast<int>(sequences.size()));
  for (Sequence* s : sequences) {
    drafts_.push_back({s, s->drafts.size()});
    s->drafts.push_back(0);
    s->draft_draws.push_back(draw++);
  }
}

void DraftChain::settle(Runner& runner) {
  const auto tokens = runner.finish_chain();
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    Sequence* s = drafts_[i].sequence;
    if (s == nullptr) continue;
    if (drafts_[i].at < s->drafts.size()) s->drafts[drafts_[i].at] = tokens[i];
    s->draft_draws.clear();
  }
  drafts_.clear();
}

void DraftChain::forget(const Sequence& sequence) {
  for (Draft& d : drafts_) {
    if (d.sequence == &sequence) d.sequence = nullptr;
  }
}

}  // namespace strata
