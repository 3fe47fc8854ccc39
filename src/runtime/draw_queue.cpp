#include "runtime/draw_queue.h"

namespace strata {

void DrawQueue::clear() {
  rows_.clear();
  extents_.clear();
  edits_.clear();
  masks_.clear();
}

void DrawQueue::draw(int row, const SampleContext& context, int logprobs) {
  Extent x{
      .edits = edits_.size(), .edit_count = 0, .mask = masks_.size(), .mask_words = context.allowed.size()};
  append_edits(context, edits_);
  x.edit_count = edits_.size() - x.edits;
  masks_.insert(masks_.end(), context.allowed.begin(), context.allowed.end());
  rows_.push_back(draw_row(context));
  rows_.back().row = row;
  rows_.back().logprobs = logprobs;
  extents_.push_back(x);
}

void DrawQueue::score(int row, int token, int logprobs) {
  rows_.push_back({.row = row, .score = token, .logprobs = logprobs});
  extents_.emplace_back();
}

std::span<const DrawRow> DrawQueue::rows() {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Extent& x = extents_[i];
    rows_[i].edits = std::span(edits_).subspan(x.edits, x.edit_count);
    rows_[i].allowed = std::span(masks_).subspan(x.mask, x.mask_words);
  }
  return rows_;
}

}  // namespace strata
