// Regular expressions of tokenizers: written for Oniguruma, run by PCRE2's just-in-time compiler.
//
// The pattern is translated first, so that every class means what the reference means by it: \s is
// White_Space (PCRE2 alone would add U+180E), \w is Unicode's word class, ^ and $ work at lines. What could
// mean something else is refused when loading, by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

// PCRE2's own types for 8-bit text, named here so that its header stays out of ours.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace strata {

// The pattern in PCRE2's syntax. Throws Error with the construct that is not supported.
std::string translate_pattern(std::string_view oniguruma);

// A pattern that matches just this text.
std::string quote_pattern(std::string_view literal);

// Immutable once built; threads share it and each makes its own Matcher.
class SplitRegex {
 public:
  // Throws Error naming the pattern.
  explicit SplitRegex(std::string_view oniguruma);

  // Walks the matches of one text after another. One thread; lives no longer than the regex and the text.
  class Matcher {
   public:
    explicit Matcher(const SplitRegex& regex);
    // Starts over on valid UTF-8.
    void reset(std::string_view text);
    // The next match [begin, end); false after the last. An empty match is reported and then stepped over.
    bool next(size_t& begin, size_t& end);

   private:
    int match();

    const pcre2_real_code_8* code_;
    std::unique_ptr<pcre2_real_match_data_8, void (*)(pcre2_real_match_data_8*)> data_;
    std::string_view text_;
    size_t at_ = 0;
    bool jit_ = false;
  };

 private:
  std::shared_ptr<const pcre2_real_code_8> code_;
  bool jit_ = false;
};

}  // namespace strata
