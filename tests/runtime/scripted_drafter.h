// ScriptedDrafter: drafts that a test chooses, right and wrong ones.
#pragma once

#include <functional>
#include <utility>

#include "runtime/drafter.h"
#include "runtime/engine_fixture.h"

namespace strata {

// Drafts the known answer of each request but for one place of the block, where the draft differs.
class ScriptedDrafter final : public Drafter {
 public:
  using Text = std::function<const std::vector<int>&(const Sequence&)>;
  using Wrong = std::function<int(const Sequence&)>;  // that place; beyond the block: all are right

  ScriptedDrafter(Text text, Wrong wrong) : text_(std::move(text)), wrong_(std::move(wrong)) {}

  void propose(std::span<const DraftWish> wishes) override {
    for (const DraftWish& w : wishes) {
      Sequence& s = *w.sequence;
      const std::vector<int>& text = text_(s);
      const int wrong = wrong_(s);
      for (int i = 0; i < w.drafts; ++i) {
        const auto at = static_cast<std::size_t>(s.output_tokens() + i);
        if (at >= text.size()) break;
        s.drafts.push_back(i == wrong ? (text[at] + 1) % 300 : text[at]);
      }
    }
  }

 private:
  Text text_;
  Wrong wrong_;
};

inline int never_wrong(const Sequence&) { return -1; }

inline DrafterFactory scripted(ScriptedDrafter::Text text, ScriptedDrafter::Wrong wrong = never_wrong) {
  return [text = std::move(text), wrong = std::move(wrong)](Runner&) {
    return std::make_unique<ScriptedDrafter>(text, wrong);
  };
}

// The answers by turns: request i has answers[i % answers.size()].
inline DrafterFactory scripted(std::vector<std::vector<int>> answers,
                               ScriptedDrafter::Wrong wrong = never_wrong) {
  auto texts = std::make_shared<std::vector<std::vector<int>>>(std::move(answers));
  return scripted(
      [texts](const Sequence& s) -> const std::vector<int>& { return (*texts)[s.id % texts->size()]; },
      std::move(wrong));
}

}  // namespace strata
