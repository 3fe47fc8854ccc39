#include "text/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "text/utf8.h"

namespace strata {
namespace {

// No limits on the work of one match: long texts are legal, and a limit that is hit could only stop the
// process.
pcre2_match_context* unlimited() {
  static pcre2_match_context* const context = [] {
    pcre2_match_context* made = pcre2_match_context_create(nullptr);
    STRATA_CHECK(made != nullptr, "no memory for regular expressions");
    constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
    pcre2_set_match_limit(made, kMost);
    pcre2_set_depth_limit(made, kMost);
    pcre2_set_heap_limit(made, kMost);
    return made;
  }();
  return context;
}

}  // namespace

SplitRegex::SplitRegex(std::string_view oniguruma) {
  const std::string pattern = translate_pattern(oniguruma);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  size_t offset = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                       &code, &offset, context.get());
  if (compiled == nullptr) {
    char reason[256];
    pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
    throw Error("regular expression {}: {} at byte {} of {}", oniguruma, reason, offset, pattern);
  }
  jit_ = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::shared_ptr<const pcre2_code>(compiled,
                                            [compiled](const pcre2_code*) { pcre2_code_free(compiled); });
}

SplitRegex::Matcher::Matcher(const SplitRegex& regex)
    : code_(regex.code_.get()),
      data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
      jit_(regex.jit_) {
  STRATA_CHECK(data_ != nullptr, "no memory for a regular expression match");
}

void SplitRegex::Matcher::reset(std::string_view text) {
  text_ = text;
  at_ = 0;
}

int SplitRegex::Matcher::match() {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  if (jit_) {
    const int found =
        pcre2_jit_match(code_, subject, text_.size(), at_, PCRE2_NO_UTF_CHECK, data_.get(), unlimited());
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
  }
  // The interpreter keeps its backtracking points on the heap, so it gets through where the stack was too
  // small.
  return pcre2_match(code_, subject, text_.size(), at_, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_.get(),
                     nullptr);
}

bool SplitRegex::Matcher::next(size_t& begin, size_t& end) {
  if (at_ > text_.size()) return false;
  const int found = match();
  if (found == PCRE2_ERROR_NOMATCH) {
    at_ = text_.size() + 1;
    return false;
  }
  STRATA_CHECK(found >= 0, "regular expression match failed with PCRE2 error {}", found);
  const size_t* bounds = pcre2_get_ovector_pointer(data_.get());
  begin = bounds[0];
  end = bounds[1];
  at_ = end > begin ? end : end < text_.size() ? end + utf8_length(text_[end]) : end + 1;
  return true;
}

}  // namespace strata
