// DrawQueue: the rows of a step that tokens are drawn from, with what each request wants of them.
#pragma once

#include <span>
#include <vector>

#include "runtime/sampler.h"

namespace strata {

// Keeps its memory between steps. One thread.
class DrawQueue {
 public:
  void clear();
  // Copies what `context` views.
  void draw(int row, const SampleContext& context, int logprobs);
  // The logarithm of `token`'s probability in the row.
  void score(int row, int token, int logprobs);
  std::size_t size() const { return rows_.size(); }
  // Valid until the next change.
  std::span<const DrawRow> rows();

 private:
  struct Extent {
    std::size_t edits = 0, edit_count = 0, mask = 0, mask_words = 0;
  };
  std::vector<DrawRow> rows_;
  std::vector<Extent> extents_;
  std::vector<LogitEdit> edits_;
  std::vector<std::uint32_t> masks_;
};

}  // namespace strata
