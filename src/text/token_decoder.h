// Turns the text of one token into the bytes it stands for.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/split_regex.h"

namespace strata {

// A list of steps, applied in order to each token. Immutable once built, so shared by threads.
// Only what can be said token by token is possible here, plus one rule for the start of the text: so that
// streamed text is the text decoded at once.
class TokenDecoder {
 public:
  // What is dropped at the start of the whole text: up to `count` characters equal to `content`.
  struct LeadStrip {
    std::string content;
    int count = 0;
  };

  void add_byte_level() { steps_.emplace_back(ByteLevel{}); }
  // Tokens <0x00> to <0xFF> become that byte.
  void add_byte_fallback() { steps_.emplace_back(ByteFallback{}); }
  void add_replace_text(std::string text, std::string content) {
    steps_.emplace_back(ReplaceText{std::move(text), std::move(content)});
  }
  void add_replace(SplitRegex pattern, std::string content) {
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  }
  // `mark` becomes a space; in the first token of a text it vanishes if `drop_first`.
  void add_metaspace(std::string mark, bool drop_first) {
    steps_.emplace_back(Metaspace{std::move(mark), drop_first});
  }
  // Drops up to `start` and `stop` characters equal to `content` at the ends of each token.
  void add_strip(std::string content, int start, int stop) {
    steps_.emplace_back(Strip{std::move(content), start, stop});
  }
  void set_lead_strip(LeadStrip strip) { lead_strip_ = std::move(strip); }

  // The bytes of a token; `first`: it is the first of its text.
  std::string bytes(std::string_view token, bool first) const;
  // Whether `first` can matter.
  bool first_differs() const;
  const LeadStrip& lead_strip() const { return lead_strip_; }

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct ReplaceText {
    std::string text, content;
  };
  struct Replace {
    SplitRegex pattern;
    std::string content;
  };
  struct Metaspace {
    std::string mark;
    bool drop_first;
  };
  struct Strip {
    std::string content;
    int start, stop;
  };
  using Step = std::variant<ByteLevel, ByteFallback, ReplaceText, Replace, Metaspace, Strip>;

  std::vector<Step> steps_;
  LeadStrip lead_strip_;
};

}  // namespace strata
