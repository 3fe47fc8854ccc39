// Rewrites a tokenizer's Oniguruma pattern for PCRE2, refusing what the two read differently.
#include <cctype>

#include "base/error.h"
#include "text/split_regex.h"
#include "text/utf8.h"

namespace strata {
namespace {

// Unicode's word class (UTS #18, annex C) as Oniguruma has it.
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_char(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        repeat();
      } else {
        keep(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error("regular expression {}: {} is not supported (byte {})", in_, what, at_);
  }

  bool sees(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void keep(size_t length) {
    out_ += in_.substr(at_, length);
    at_ += length;
  }

  void put(std::string_view text, size_t consumed) {
    out_ += text;
    at_ += consumed;
  }

  void open_class() {
    keep(1);
    if (sees("^")) keep(1);
    in_class_ = true;
  }

  void class_char(char c) {
    if (c == '[') refuse("a class inside a class");
    if (sees("&&")) refuse("a class intersection (&&)");
    if (c == ']') in_class_ = false;
    keep(1);
  }

  void group() {
    if (!sees("(?")) return keep(1);
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:"}) {
      if (sees(known)) return keep(known.size());
    }
    refuse(fmt::format("the group {}", in_.substr(at_, 4)));
  }

  // {n}, {n,}, {n,m}, and {,m}, which PCRE2 10.42 would take for text.
  void repeat() {
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) refuse("an open {");
    const std::string_view body = in_.substr(at_ + 1, close - at_ - 1);
    if (body.empty() || body == "," || body.find_first_not_of("0123456789,") != std::string_view::npos) {
      refuse(fmt::format("the repeat {{{}}}", body));
    }
    if (close + 1 < in_.size() && in_[close + 1] == '+') refuse("a + after a repeat");
    put(fmt::format("{{{}{}}}", body.front() == ',' ? "0" : "", body), close + 1 - at_);
  }

  void escape() {
    if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
    const char c = in_[at_ + 1];
    const bool alphanumeric = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!alphanumeric) return keep(1 + utf8_length(c));
    switch (c) {
      case 's':
        return put("\\p{White_Space}", 2);
      case 'S':
        return put("\\P{White_Space}", 2);
      case 'd':
        return put("\\p{Nd}", 2);
      case 'D':
        return put("\\P{Nd}", 2);
      case 'w':
        return put(in_class_ ? std::string(kWord) : fmt::format("[{}]", kWord), 2);
      case 'W':
        if (in_class_) refuse("\\W in a class");
        return put(fmt::format("[^{}]", kWord), 2);
      case 'b':
      case 'B':
        return word_boundary(c == 'b');
      case 'p':
      case 'P':
        return property();
      case 'u':
        return code_point();
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'A':
      case 'z':
        return keep(2);
      case 'v':
        return put("\\x0b", 2);
      default:
        refuse(fmt::format("the escape \\{}", c));
    }
  }

  void word_boundary(bool at_boundary) {
    if (in_class_) refuse("\\b in a class");
    const std::string edge = fmt::format("(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}])", kWord);
    put(at_boundary ? fmt::format("(?:{})", edge) : fmt::format("(?!{})", edge), 2);
  }

  void property() {
    const size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos)
      refuse("a property without braces");
    keep(close + 1 - at_);
  }

  void code_point() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse("\\u without four hexadecimal digits");
    }
    put(fmt::format("\\x{{{}}}", digits), 6);
  }

  std::string_view in_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string translate_pattern(std::string_view oniguruma) {
  if (!is_valid_utf8(oniguruma)) throw Error("regular expression is not UTF-8");
  return Translator(oniguruma).run();
}

std::string quote_pattern(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || (static_cast<unsigned char>(c) & 0x80) != 0;
    if (!plain && c != ' ' && c != '\n' && c != '\r' && c != '\t') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

}  // namespace strata
