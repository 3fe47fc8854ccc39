#include "text/pre_tokenizer.h"

#include "text/byte_level.h"

namespace strata {
namespace {

using Span = Words::Span;

// Collects the words of one span from its pieces, which are fed in order and cover it.
class SpanSplitter {
 public:
  SpanSplitter(SplitBehavior behavior, std::vector<Span>& out)
      : behavior_(behavior), out_(out), first_(out.size()) {}

  void piece(Span span, bool matches) {
    if (span.begin == span.end) return;
    if (behavior_ == SplitBehavior::kRemoved && matches) return;
    if (joins(matches)) {
      out_.back().end = span.end;
    } else {
      out_.push_back(span);
    }
    matched_ = matches;
  }

 private:
  // Whether a piece belongs to the word before it.
  bool joins(bool matches) const {
    if (out_.size() == first_) return false;
    switch (behavior_) {
      case SplitBehavior::kContiguous:
        return matches == matched_;
      case SplitBehavior::kMergedWithPrevious:
        return matches && !matched_;
      case SplitBehavior::kMergedWithNext:
        return !matches && matched_;
      default:
        return false;
    }
  }

  SplitBehavior behavior_;
  std::vector<Span>& out_;
  size_t first_;
  bool matched_ = false;
};

// Rewrites every word by `append(word, out)`; what lies between words is dropped.
template <typename Append>
void rewrite(Words& words, Append append) {
  std::string out;
  out.reserve(words.text.size() + words.spans.size());
  if (!words.spans.empty() && words.spans.front().begin > 0) words.at_start = false;
  for (size_t i = 0; i < words.spans.size(); ++i) {
    const size_t begin = out.size();
    append(words.word(i), i == 0 && words.at_start, out);
    words.spans[i] = {begin, out.size()};
  }
  words.storage = std::move(out);
  words.text = words.storage;
}

}  // namespace

void PreTokenizer::add_split(SplitRegex regex, SplitBehavior behavior, bool invert) {
  steps_.emplace_back(Split{std::move(regex), behavior, invert});
}

void PreTokenizer::add_metaspace(std::string mark, Prefix prefix, bool split) {
  SplitRegex regex(quote_pattern(mark));
  steps_.emplace_back(Metaspace{std::move(mark), prefix});
  if (split) add_split(std::move(regex), SplitBehavior::kMergedWithNext, false);
}

bool PreTokenizer::take_final_byte_level() {
  if (steps_.empty() || !std::holds_alternative<ByteLevel>(steps_.back())) return false;
  steps_.pop_back();
  return true;
}

void PreTokenizer::apply(Words& words) const {
  words.spans.clear();
  if (!words.text.empty()) words.spans.push_back({0, words.text.size()});
  for (const Step& step : steps_) {
    std::visit([&](const auto& s) { run(s, words); }, step);
  }
}

void PreTokenizer::run(const Split& step, Words& words) {
  std::vector<Span> out;
  out.reserve(words.spans.size() + words.text.size() / 4);
  SplitRegex::Matcher matcher(step.regex);
  for (size_t i = 0; i < words.spans.size(); ++i) {
    const std::string_view word = words.word(i);
    const size_t base = words.spans[i].begin;
    SpanSplitter splitter(step.behavior, out);
    matcher.reset(word);
    size_t begin = 0, end = 0, done = 0;
    while (matcher.next(begin, end)) {
      splitter.piece({base + done, base + begin}, step.invert);
      splitter.piece({base + begin, base + end}, !step.invert);
      done = end;
    }
    splitter.piece({base + done, base + word.size()}, step.invert);
  }
  words.spans = std::move(out);
}

void PreTokenizer::run(const PrefixSpace&, Words& words) {
  rewrite(words, [](std::string_view word, bool, std::string& out) {
    if (word.front() != ' ') out.push_back(' ');
    out += word;
  });
}

void PreTokenizer::run(const ByteLevel&, Words& words) {
  rewrite(words, [](std::string_view word, bool, std::string& out) { append_byte_level(out, word); });
}

void PreTokenizer::run(const Metaspace& step, Words& words) {
  rewrite(words, [&step](std::string_view word, bool first, std::string& out) {
    const bool wanted = step.prefix == Prefix::kAlways || (step.prefix == Prefix::kFirst && first);
    if (wanted && word.front() != ' ' && !word.starts_with(step.mark)) out += step.mark;
    for (const char c : word) {
      if (c == ' ') {
        out += step.mark;
      } else {
        out.push_back(c);
      }
    }
  });
}

void PreTokenizer::run(const SplitBeforeRuns& step, Words& words) {
  std::vector<Span> out;
  out.reserve(words.spans.size() + words.text.size() / 4);
  for (const Span span : words.spans) {
    size_t begin = span.begin;
    size_t mark = words.text.find(step.mark, begin);
    while (mark < span.end) {
      if (mark > begin && !step.except[static_cast<uint8_t>(words.text[mark - 1])]) {
        out.push_back({begin, mark});
        begin = mark;
      }
      do {
        mark += step.mark.size();
      } while (words.text.substr(mark).starts_with(step.mark));
      mark = words.text.find(step.mark, mark);
    }
    out.push_back({begin, span.end});
  }
  words.spans = std::move(out);
}

}  // namespace strata
