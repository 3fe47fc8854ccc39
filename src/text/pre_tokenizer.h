// Cuts normalised text into the words that the model tokenizes one by one.
//
// Steps and their behaviour follow the published format of tokenizer.json (huggingface.co/docs/tokenizers,
// pre-tokenizers).
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/split_regex.h"

namespace strata {

// What becomes of the matches of a split.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A text and its words: spans of the text in order. A view into `storage` or into the caller's text.
struct Words {
  struct Span {
    size_t begin, end;
  };

  std::string_view text;
  std::string storage;      // holds `text` once a step has rewritten it
  std::vector<Span> spans;  // none is empty
  bool at_start = false;    // the text starts where the whole input starts

  std::string_view word(size_t i) const { return text.substr(spans[i].begin, spans[i].end - spans[i].begin); }
};

// A list of steps, applied in order. Immutable once built, so shared by threads.
class PreTokenizer {
 public:
  enum class Prefix { kNever, kFirst, kAlways };

  // Cuts at the matches of `regex`, or at what lies between them when inverted.
  void add_split(SplitRegex regex, SplitBehavior behavior, bool invert);
  // A space before each word that has none.
  void add_prefix_space() { steps_.emplace_back(PrefixSpace{}); }
  // Writes each byte of the words as its character of the byte-level alphabet.
  void add_byte_level() { steps_.emplace_back(ByteLevel{}); }
  // Spaces become `mark`, put before the words too as `prefix` says; with `split` a word ends before each
  // mark.
  void add_metaspace(std::string mark, Prefix prefix, bool split);
  // A word ends before each run of `mark`, except behind these bytes.
  void add_split_before_runs(std::string mark, std::bitset<256> except) {
    steps_.emplace_back(SplitBeforeRuns{std::move(mark), except});
  }

  // If the last step is byte level, takes it out and returns true: the model then reads bytes itself.
  bool take_final_byte_level();

  // Cuts words.text, one word at first, into words.
  void apply(Words& words) const;

 private:
  struct Split {
    SplitRegex regex;
    SplitBehavior behavior;
    bool invert;
  };
  struct PrefixSpace {};
  struct ByteLevel {};
  struct Metaspace {
    std::string mark;
    Prefix prefix;
  };
  struct SplitBeforeRuns {
    std::string mark;
    std::bitset<256> except;
  };
  using Step = std::variant<Split, PrefixSpace, ByteLevel, Metaspace, SplitBeforeRuns>;

  static void run(const Split& step, Words& words);
  static void run(const PrefixSpace& step, Words& words);
  static void run(const ByteLevel& step, Words& words);
  static void run(const Metaspace& step, Words& words);
  static void run(const SplitBeforeRuns& step, Words& words);

  std::vector<Step> steps_;
};

}  // namespace strata
