#include "text/json_text.h"

#include <algorithm>
#include <map>
#include <string>

#include "text/utf8.h"

namespace strata {
namespace {

constexpr int kMaxIndent = 32;
constexpr std::string_view kHex = "0123456789abcdefABCDEF";

// Bytes [i, n) of characters between `low` and `high`, both written with n bytes.
int utf8_tail(GrammarBuilder& b, const std::string& low, const std::string& high, std::size_t i, int next) {
  if (i == low.size()) return next;
  auto first = static_cast<std::uint8_t>(low[i]), last = static_cast<std::uint8_t>(high[i]);
  const std::size_t rest = low.size() - i - 1;
  const std::string least = low.substr(0, i + 1) + std::string(rest, '\x80');
  const std::string most = low.substr(0, i + 1) + std::string(rest, '\xBF');
  if (first == last) return b.bytes(byte_range(first, last), utf8_tail(b, low, high, i + 1, next));
  int out = GrammarBuilder::kDead;
  if (low.substr(i + 1) != least.substr(i + 1)) {
    out = b.bytes(byte_range(first, first), utf8_tail(b, low, most, i + 1, next));
    ++first;
  }
  if (high.substr(i + 1) != most.substr(i + 1)) {
    out = b.either(out, b.bytes(byte_range(last, last), utf8_tail(b, least, high, i + 1, next)));
    --last;
  }
  if (first <= last)
    out = b.either(out, b.bytes(byte_range(first, last), utf8_tail(b, least, most, i + 1, next)));
  return out;
}

int utf8_range(GrammarBuilder& b, char32_t low, char32_t high, int next) {
  int out = GrammarBuilder::kDead;
  for (const CharRange part :
       {CharRange{0x80, 0x7FF}, CharRange{0x800, 0xFFFF}, CharRange{0x10000, 0x10FFFF}}) {
    if (std::max(low, part.low) > std::min(high, part.high)) continue;
    std::string first, last;
    append_utf8(first, std::max(low, part.low));
    append_utf8(last, std::min(high, part.high));
    out = b.either(out, utf8_tail(b, first, last, 0, next));
  }
  return out;
}

// A character below U+0020, a quote or a backslash.
int escaped(GrammarBuilder& b, char32_t c, int next) {
  static const std::map<char32_t, char> kShort{{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                               {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  if (const auto it = kShort.find(c); it != kShort.end())
    return b.literal(std::string{'\\', it->second}, next);
  const char digit = kHex[c % 16];
  const std::string both{digit, static_cast<char>(digit >= 'a' ? digit - 'a' + 'A' : digit)};
  return b.literal(c < 16 ? "\\u000" : "\\u001", b.bytes(bytes_of(both), next));
}

}  // namespace

int json_char(GrammarBuilder& b, const CharSet& set, int next) {
  ByteSet ascii{};
  int out = GrammarBuilder::kDead;
  for (const CharRange& r : set) {
    for (char32_t c = r.low; c <= std::min<char32_t>(r.high, 0x7F); ++c) {
      if (c < 0x20 || c == '"' || c == '\\')
        out = b.either(out, escaped(b, c, next));
      else
        ascii[c / 64] |= std::uint64_t{1} << (c % 64);
    }
    if (r.high > 0x7F) out = b.either(out, utf8_range(b, std::max<char32_t>(r.low, 0x80), r.high, next));
  }
  return b.either(b.bytes(ascii, next), out);
}

int json_string(GrammarBuilder& b, int min, int max, int next) {
  const int loop = b.placeholder();
  const int plain = b.bytes(without(byte_range(0x20, 0x7F), "\"\\"), loop);
  b.mark_text(plain);
  const ByteSet hex = bytes_of(kHex);
  const int hex2 = b.bytes(hex, b.bytes(hex, loop));
  const int low_half = b.literal("\\u", b.bytes(bytes_of("dD"), b.bytes(bytes_of("cdefCDEF"), hex2)));
  const int high_half = b.bytes(bytes_of("89abAB"), b.bytes(hex, b.bytes(hex, low_half)));
  int code = b.bytes(without(hex, "dD"), b.bytes(hex, hex2));
  code = b.either(code, b.bytes(bytes_of("dD"), b.either(b.bytes(byte_range('0', '7'), hex2), high_half)));
  const int escape = b.literal("\\", b.either(b.bytes(bytes_of("\"\\/bfnrt"), loop), b.literal("u", code)));
  int chars = b.either(plain, b.either(escape, utf8_range(b, 0x80, 0xD7FF, loop)));
  chars = b.either(chars, utf8_range(b, 0xE000, 0x10FFFF, loop));
  if (min > 0 || max != kNoLimit) chars = b.count(max, chars);
  b.fill(loop, b.either(chars, b.at_least(min, b.literal("\"", next))));
  return b.literal("\"", loop);
}

int json_string(GrammarBuilder& b, const CharDfa& dfa, int max, int next, bool open) {
  if (dfa.states.empty()) return GrammarBuilder::kDead;
  const std::vector<int> distance = distance_to_accept(dfa);
  std::vector<int> places;
  for (std::size_t s = 0; s < dfa.states.size(); ++s) places.push_back(b.placeholder());
  const int close = b.literal("\"", next);
  for (std::size_t s = 0; s < dfa.states.size(); ++s) {
    std::map<int, CharSet> by_target;
    for (const CharDfa::Edge& e : dfa.states[s].edges) by_target[e.target].push_back({e.low, e.high});
    int node = dfa.states[s].accept ? close : GrammarBuilder::kDead;
    for (const auto& [target, set] : by_target) {
      const int left = distance[static_cast<std::size_t>(target)];
      if (left == kNoWay) continue;
      int chars = json_char(b, set, places[static_cast<std::size_t>(target)]);
      if (max != kNoLimit) chars = b.count(max - left, chars);
      node = b.either(node, chars);
    }
    b.fill(places[s], node);
  }
  const bool fits = max == kNoLimit || distance[0] <= max;
  if (!fits) return GrammarBuilder::kDead;
  return open ? places[0] : b.literal("\"", places[0]);
}

int declare_indent(GrammarBuilder& b) {
  const int rule = b.declare();
  b.begin(rule);
  const int loop = b.placeholder();
  b.fill(loop, b.either(b.count(kMaxIndent, b.bytes(bytes_of(" \t"), loop)), b.end()));
  b.define(b.literal("\n", loop));
  return rule;
}

int white_space(GrammarBuilder& b, int indent, int next) {
  return b.either(next, b.either(b.literal(" ", next), b.call(indent, next)));
}

int until(GrammarBuilder& b, std::string_view marker, int next) {
  // The automaton of Knuth, Morris and Pratt (1977), for markers whose first byte does not come again.
  std::vector<int> places;
  for (std::size_t i = 0; i < marker.size(); ++i) places.push_back(b.placeholder());
  const std::string first(marker.substr(0, 1));
  for (std::size_t i = 0; i < marker.size(); ++i) {
    const std::string wanted(marker.substr(i, 1));
    const int on = b.bytes(bytes_of(wanted), i + 1 < marker.size() ? places[i + 1] : next);
    const int again = i == 0 ? GrammarBuilder::kDead : b.bytes(bytes_of(first), places[1]);
    const int back = b.bytes(without(byte_range(0, 255), wanted + first), places[0]);
    for (const int node : {on, again, back})
      if (node != GrammarBuilder::kDead) b.mark_free(node);
    b.fill(places[i], b.either(on, b.either(again, back)));
  }
  return places[0];
}

int anything(GrammarBuilder& b) {
  const int loop = b.placeholder();
  const int any = b.bytes(byte_range(0, 255), loop);
  b.mark_free(any);
  b.fill(loop, b.either(any, b.end()));
  return loop;
}

}  // namespace strata
