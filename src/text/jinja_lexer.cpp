// The lexer: follows jinja2/lexer.py of Jinja 3.1 rule by rule.
#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

// \r\n and \r become \n; one newline at the very end is dropped.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

int count_lines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (pos_ < rest_.size()) root();
    push(Tok::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(const std::string& message) const { throw SyntaxError(message, line_); }

  char at(size_t pos) const { return pos < rest_.size() ? rest_[pos] : '\0'; }
  bool looking_at(std::string_view what, size_t pos) const {
    return rest_.substr(std::min(pos, rest_.size())).starts_with(what);
  }

  size_t skip_space(size_t pos) const {
    while (pos < rest_.size()) {
      size_t next = pos;
      if (!is_space(decode(rest_, next))) break;
      pos = next;
    }
    return pos;
  }

  void push(Tok type, std::string text) { tokens_.push_back(Token{type, line_, std::move(text), {}}); }

  // Moves to `end`, counting the lines in between.
  void advance(size_t end) {
    line_ += count_lines(rest_.substr(pos_, end - pos_));
    line_starting_ = end > pos_ && rest_[end - 1] == '\n';
    pos_ = end;
  }

  // Template text up to a tag at `end` whose sign (- or + or none) is known; moves to `end`.
  void data(size_t end, char sign, bool variable) {
    std::string_view text = rest_.substr(pos_, end - pos_);
    if (sign == '-') {
      text = strip(text, false, true);
    } else if (sign != '+' && !variable) {
      const size_t newline = text.rfind('\n');
      const size_t tail = newline == text.npos ? 0 : newline + 1;
      if ((tail > 0 || line_starting_) && strip(text.substr(tail), true, false).empty())
        text = text.substr(0, tail);
    }
    if (!text.empty()) push(Tok::kData, std::string(text));
    line_ += count_lines(rest_.substr(pos_, end - pos_));
    pos_ = end;
  }

  char sign_at(size_t pos) const { return at(pos) == '-' || at(pos) == '+' ? at(pos) : '\0'; }

  // The end of "%}" with its sign, trimming and following newline, from `pos`; npos if there is none.
  size_t block_end(size_t pos, std::string_view close) const {
    if (at(pos) == '+' && looking_at(close, pos + 1)) return pos + 3;
    if (at(pos) == '-' && looking_at(close, pos + 1)) return skip_space(pos + 3);
    if (looking_at(close, pos)) return pos + 2 + (at(pos + 2) == '\n' ? 1 : 0);
    return std::string_view::npos;
  }

  void root() {
    size_t tag = pos_;
    while (true) {
      tag = rest_.find('{', tag);
      if (tag == rest_.npos) {
        push(Tok::kData, std::string(rest_.substr(pos_)));
        return advance(rest_.size());
      }
      const char kind = at(tag + 1);
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    const char kind = at(tag + 1);
    const char sign = sign_at(tag + 2);
    if (kind == '%') {
      if (const size_t raw = raw_begin(tag + 2 + (sign ? 1 : 0)); raw != rest_.npos) {
        data(tag, sign, false);
        advance(raw);
        return raw_block();
      }
    }
    data(tag, sign, kind == '{');
    const size_t inside = tag + 2 + (sign ? 1 : 0);
    if (kind == '#') return comment(inside);
    push(kind == '%' ? Tok::kBlockBegin : Tok::kVariableBegin, "");
    advance(inside);
    code(kind == '%');
  }

  size_t raw_begin(size_t pos) const {
    pos = skip_space(pos);
    if (!looking_at("raw", pos)) return rest_.npos;
    pos = skip_space(pos + 3);
    if (looking_at("-%}", pos)) return skip_space(pos + 3);
    return looking_at("%}", pos) ? pos + 2 : rest_.npos;
  }

  void raw_block() {
    for (size_t tag = rest_.find("{%", pos_); tag != rest_.npos; tag = rest_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      size_t pos = skip_space(tag + 2 + (sign ? 1 : 0));
      if (!looking_at("endraw", pos)) continue;
      const size_t end = block_end(skip_space(pos + 6), "%}");
      if (end == rest_.npos) continue;
      data(tag, sign, false);
      return advance(end);
    }
    error("Missing end of raw directive");
  }

  void comment(size_t inside) {
    for (size_t pos = inside; pos < rest_.size(); ++pos) {
      const size_t end = block_end(pos, "#}");
      if (end != rest_.npos) return advance(end);
    }
    if (inside < rest_.size()) error("Missing end of comment tag");
    advance(inside);
  }

  void code(bool block) {
    std::string open;  // brackets waiting to be closed
    while (pos_ < rest_.size()) {
      if (open.empty()) {
        if (const size_t end = code_end(block); end != rest_.npos) {
          push(block ? Tok::kBlockEnd : Tok::kVariableEnd, "");
          return advance(end);
        }
      }
      const size_t after_space = skip_space(pos_);
      if (after_space > pos_) {
        advance(after_space);
        continue;
      }
      if (!number() && !name() && !string() && !operation(open)) {
        size_t next = pos_;
        decode(rest_, next);
        error("unexpected char " + repr_str(rest_.substr(pos_, next - pos_)));
      }
    }
  }

  size_t code_end(bool block) const {
    if (block) return block_end(pos_, "%}");
    if (looking_at("-}}", pos_)) return skip_space(pos_ + 3);
    return looking_at("}}", pos_) ? pos_ + 2 : rest_.npos;
  }

  // (digits_)*digits from pos; returns its end, or pos.
  size_t digits(size_t pos) const {
    if (!is_ascii_digit(at(pos))) return pos;
    while (is_ascii_digit(at(pos)) || (at(pos) == '_' && is_ascii_digit(at(pos + 1)))) ++pos;
    return pos;
  }

  bool number() {
    if (!is_ascii_digit(at(pos_))) return false;
    return floating() || integer();
  }

  bool floating() {
    if (pos_ > 0 && at(pos_ - 1) == '.') return false;
    const size_t whole = digits(pos_);
    size_t end = whole;
    if (at(end) == '.' && is_ascii_digit(at(end + 1))) end = digits(end + 1);
    if ((at(end) | 0x20) == 'e') {
      const size_t exponent = end + 1 + (at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0);
      if (is_ascii_digit(at(exponent))) end = digits(exponent);
    }
    if (end == whole) return false;
    std::string text(rest_.substr(pos_, end - pos_));
    std::erase(text, '_');
    push(Tok::kFloat, "");
    tokens_.back().number = Value(std::strtod(text.c_str(), nullptr));
    advance(end);
    return true;
  }

  bool integer() {
    const char prefix = static_cast<char>(at(pos_ + 1) | 0x20);
    int base = 10;
    if (at(pos_) == '0') base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    const auto digit_value = [](char c) {
      return is_ascii_digit(c)                        ? c - '0'
             : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                      : 99;
    };
    const auto accepts = [&](char c) {
      return base == 10 && at(pos_) == '0' ? c == '0' : digit_value(c) < base;
    };
    size_t end = pos_ + (base == 10 ? 0 : 2);
    Int value = 0;
    bool any = false;
    while (accepts(at(end)) || (at(end) == '_' && (any || base != 10) && accepts(at(end + 1)))) {
      any = true;
      if (at(end) != '_' && (__builtin_mul_overflow(value, Int{base}, &value) ||
                             __builtin_add_overflow(value, Int{digit_value(at(end))}, &value))) {
        error("integer is too large");
      }
      ++end;
    }
    if (!any) {  // "0x" without digits is the number 0 before a name
      end = pos_ + 1;
      value = 0;
    }
    push(Tok::kInteger, "");
    tokens_.back().number = Value(value);
    advance(end);
    return true;
  }

  bool name() {
    size_t end = pos_;
    if (!is_identifier_start(decode(rest_, end))) return false;
    while (end < rest_.size()) {
      size_t next = end;
      if (!is_identifier_part(decode(rest_, next))) break;
      end = next;
    }
    push(Tok::kName, std::string(rest_.substr(pos_, end - pos_)));
    advance(end);
    return true;
  }

  bool string() {
    const char quote = at(pos_);
    if (quote != '\'' && quote != '"') return false;
    size_t end = pos_ + 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return false;
    push(Tok::kString, unescape(rest_.substr(pos_ + 1, end - pos_ - 1)));
    advance(end + 1);
    return true;
  }

  // Python's "unicode-escape".
  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      if (++i >= text.size()) error("\\ at end of string");
      constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
      const char c = text[i];
      if (const size_t letter = kLetters.find(c); letter != kLetters.npos) {
        out += kMeanings[letter];
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        size_t n = 0;
        for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n) {
          value = value * 8 + static_cast<char32_t>(text[i + n] - '0');
        }
        append_utf8(out, value);
        i += n - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_utf8(out, hex_escape(text.substr(i + 1, n), n, c));
        i += n;
      } else if (c == 'N') {
        error("named characters (\\N{...}) are not supported");
      } else if (static_cast<unsigned char>(c) >= 0x80) {
        // Python escapes what is not ASCII first, so the backslash and that escape's letters remain.
        const size_t begin = i;
        decode(text, i);
        out += escape_non_ascii(text.substr(begin, i - begin));
        --i;
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  char32_t hex_escape(std::string_view hex, size_t length, char kind) const {
    uint32_t value = 0;
    const auto [end, status] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() < length || end != hex.data() + length || status != std::errc{}) {
      error(fmt::format("truncated \\{} escape", kind));
    }
    if (value > 0x10FFFF) error("illegal Unicode character");
    if (value >= 0xD800 && value < 0xE000) error("a \\u escape of half a surrogate pair is not a character");
    return value;
  }

  bool operation(std::string& open) {
    constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t length = 1;
    for (const auto op : kDouble) {
      if (looking_at(op, pos_)) length = 2;
    }
    const char c = at(pos_);
    if (length == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      return false;
    if (c == '{') open += '}';
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '}' || c == ')' || c == ']') {
      if (open.empty()) error(fmt::format("unexpected '{}'", c));
      if (open.back() != c) error(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    push(Tok::kOperator, std::string(rest_.substr(pos_, length)));
    advance(pos_ + length);
    return true;
  }

  std::string source_;
  std::string_view rest_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace strata::jinja
