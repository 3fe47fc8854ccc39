// Reads the text of a pattern.
#include <fmt/format.h>

#include <optional>

#include "text/pattern_ast.h"
#include "text/utf8.h"

namespace strata {
namespace {

constexpr int kMaxRepeat = 10000, kMaxNesting = 100;

const CharSet kDigits{{'0', '9'}};
const CharSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// WhiteSpace and LineTerminator of ECMA-262
const CharSet kSpace{{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                     {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                     {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  PatternNode parse() {
    PatternNode node = choice();
    if (!done()) fail("has a ) without (");
    return node;
  }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw SchemaError("pattern " + what); }
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  char32_t next_char() {
    if (done()) fail("ends in the middle of a construct");
    const Utf8Char c = utf8_char(text_, at_);
    at_ += c.length;
    return c.value;
  }

  PatternNode choice() {
    if (++nesting_ > kMaxNesting) fail("is nested too deeply");
    PatternNode out{PatternNode::Kind::kChoice, {}, {}, 0, -1};
    do out.children.push_back(sequence());
    while (take("|"));
    --nesting_;
    return out.children.size() == 1 ? std::move(out.children.front()) : out;
  }

  PatternNode sequence() {
    PatternNode out;
    while (!done() && peek() != '|' && peek() != ')') out.children.push_back(quantified());
    return out;
  }

  PatternNode quantified() {
    PatternNode node = atom();
    const bool assertion = node.kind == PatternNode::Kind::kStart || node.kind == PatternNode::Kind::kEnd;
    while (const auto bounds = quantifier()) {
      if (assertion) fail("repeats an anchor");
      take("?");  // lazy: the same strings
      PatternNode repeat{PatternNode::Kind::kRepeat, {}, {}, bounds->first, bounds->second};
      repeat.children.push_back(std::move(node));
      node = std::move(repeat);
      if (quantifier()) fail("has two quantifiers in a row");
      break;
    }
    return node;
  }

  std::optional<std::pair<int, int>> quantifier() {
    if (done()) return std::nullopt;
    if (take("*")) return std::pair(0, -1);
    if (take("+")) return std::pair(1, -1);
    if (take("?")) return std::pair(0, 1);
    if (!take("{")) return std::nullopt;
    const int min = number();
    int max = min;
    if (take(",")) max = !done() && peek() == '}' ? -1 : number();
    if (!take("}")) fail("has a { that is no quantifier");
    if (max >= 0 && max < min) fail("has a quantifier whose bounds are the wrong way round");
    return std::pair(min, max);
  }

  int number() {
    int value = 0;
    const std::size_t start = at_;
    while (!done() && peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > kMaxRepeat) fail(fmt::format("has a quantifier above {}", kMaxRepeat));
    }
    if (at_ == start) fail("has a { that is no quantifier");
    return value;
  }

  static PatternNode chars(CharSet set) {
    return {PatternNode::Kind::kChars, normal(std::move(set)), {}, 0, -1};
  }

  PatternNode atom() {
    if (take("^")) return {PatternNode::Kind::kStart, {}, {}, 0, -1};
    if (take("$")) return {PatternNode::Kind::kEnd, {}, {}, 0, -1};
    if (take(".")) return chars(complement(kLineEnds));
    if (take("[")) return chars(char_class());
    if (take("(")) {
      group_head();
      PatternNode inner = choice();
      if (!take(")")) fail("has a ( without )");
      return inner;
    }
    if (take("\\")) return chars(escape(false));
    const char32_t c = next_char();
    if (c == '*' || c == '+' || c == '?' || c == '{') fail("has a quantifier with nothing to repeat");
    return chars({{c, c}});
  }

  void group_head() {
    if (!take("?")) return;
    if (take(":")) return;
    if (take("=") || take("!") || take("<=") || take("<!"))
      fail("has a look-around group, which is not supported");
    if (!take("<")) fail("has a (? group that is not supported");
    while (!take(">")) next_char();  // a name
  }

  CharSet char_class() {
    const bool negated = take("^");
    CharSet out;
    while (!take("]")) {
      CharSet first = class_atom();
      const bool range = text_.substr(at_).starts_with("-") && !text_.substr(at_).starts_with("-]");
      if (range && single(first)) {
        ++at_;
        const CharSet last = class_atom();
        if (!single(last) || last[0].low < first[0].low) fail("has a range in a class that is not in order");
        first = {{first[0].low, last[0].low}};
      }
      out.insert(out.end(), first.begin(), first.end());
    }
    out = normal(std::move(out));
    return negated ? complement(out) : out;
  }
  static bool single(const CharSet& set) { return set.size() == 1 && set[0].low == set[0].high; }

  CharSet class_atom() {
    if (take("\\")) return escape(true);
    const char32_t c = next_char();
    return {{c, c}};
  }

  CharSet escape(bool in_class) {
    const char32_t c = next_char();
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 't':
        return {{'\t', '\t'}};
      case 'n':
        return {{'\n', '\n'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'r':
        return {{'\r', '\r'}};
      case 'c': {
        const char32_t letter = next_char();
        if (!((letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z'))) fail("has a wrong \\c");
        return {{letter % 32, letter % 32}};
      }
      case 'x':
        return code_point(2);
      case 'u':
        return unicode_escape();
      default:
        break;
    }
    if (c == '0' && (done() || peek() < '0' || peek() > '9')) return {{0, 0}};
    if (c == 'b' && in_class) return {{'\b', '\b'}};
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) {
      const bool reference = c >= '1' && c <= '9';
      fail(fmt::format("has {}\\{}, which is not supported",
                       reference || c == 'k' ? "the back reference " : "", static_cast<char>(c)));
    }
    return {{c, c}};
  }

  CharSet code_point(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) value = value * 16 + hex_digit();
    return {{value, value}};
  }

  CharSet unicode_escape() {
    if (!take("{")) {
      CharSet out = code_point(4);
      const bool high = out[0].low >= 0xD800 && out[0].low <= 0xDBFF;
      if (!high || !take("\\u")) return out;
      const char32_t low = code_point(4)[0].low;
      if (low < 0xDC00 || low > 0xDFFF) fail("has half of a surrogate pair");
      const char32_t pair = 0x10000 + ((out[0].low - 0xD800) << 10) + (low - 0xDC00);
      return {{pair, pair}};
    }
    char32_t value = 0;
    while (!take("}")) {
      value = value * 16 + hex_digit();
      if (value > 0x10FFFF) fail("has a \\u{} beyond Unicode");
    }
    return {{value, value}};
  }

  char32_t hex_digit() {
    const char32_t c = next_char();
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    fail("has a wrong hexadecimal escape");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

PatternNode parse_pattern(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace strata
