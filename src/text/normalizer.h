// Rewrites text before it is split: Unicode normal forms, lower case, replacements.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/split_regex.h"

namespace strata {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// A list of steps, applied in order. Immutable once built, so shared by threads.
class Normalizer {
 public:
  void add_form(NormalForm form) { steps_.emplace_back(form); }
  void add_lowercase() { steps_.emplace_back(Lowercase{}); }
  // Puts `text` before any text that is not empty.
  void add_prepend(std::string text) { steps_.emplace_back(Prepend{std::move(text)}); }
  // Every match becomes `content`, taken literally.
  void add_replace(SplitRegex pattern, std::string content) {
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  }
  // Replaces plain text; what add_replace does with a quoted pattern, only faster.
  void add_replace_text(std::string text, std::string content) {
    steps_.emplace_back(ReplaceText{std::move(text), std::move(content)});
  }
  // Drops white space at the ends.
  void add_strip(bool left, bool right) { steps_.emplace_back(Strip{left, right}); }

  bool empty() const { return steps_.empty(); }

  // The normalised form of valid UTF-8: `text` itself where nothing changes, else the content of `storage`.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  struct Lowercase {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    SplitRegex pattern;
    std::string content;
  };
  struct ReplaceText {
    std::string text, content;
  };
  struct Strip {
    bool left, right;
  };
  using Step = std::variant<NormalForm, Lowercase, Prepend, Replace, ReplaceText, Strip>;

  // Each writes the changed text to `out` and returns it, or returns `text`.
  static std::string_view run(NormalForm form, std::string_view text, std::string& out);
  static std::string_view run(const Lowercase&, std::string_view text, std::string& out);
  static std::string_view run(const Prepend& step, std::string_view text, std::string& out);
  static std::string_view run(const Replace& step, std::string_view text, std::string& out);
  static std::string_view run(const ReplaceText& step, std::string_view text, std::string& out);
  static std::string_view run(const Strip& step, std::string_view text, std::string& out);

  std::vector<Step> steps_;
};

}  // namespace strata
