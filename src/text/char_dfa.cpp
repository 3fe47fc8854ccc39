#include "text/char_dfa.h"

#include <algorithm>
#include <deque>
#include <map>

#include "text/utf8.h"

namespace strata {
namespace {

// Where to go on this character, or -1.
int next_state(const CharDfa::State& state, char32_t c) {
  const auto after = std::upper_bound(state.edges.begin(), state.edges.end(), c,
                                      [](char32_t value, const CharDfa::Edge& e) { return value < e.low; });
  if (after == state.edges.begin()) return -1;
  const CharDfa::Edge& edge = *std::prev(after);
  return c <= edge.high ? edge.target : -1;
}

void add_any(CharDfa::State& state, int target) {
  for (const CharRange& r : all_chars()) state.edges.push_back({r.low, r.high, target});
}

}  // namespace

const CharSet& all_chars() {
  static const CharSet set{{0, 0xD7FF}, {0xE000, 0x10FFFF}};
  return set;
}

CharSet normal(CharSet set) {
  std::sort(set.begin(), set.end(), [](const CharRange& a, const CharRange& b) { return a.low < b.low; });
  CharSet merged;
  for (const CharRange& r : set) {
    if (!merged.empty() && r.low <= merged.back().high + 1)
      merged.back().high = std::max(merged.back().high, r.high);
    else
      merged.push_back(r);
  }
  CharSet out;
  for (const CharRange& r : merged)
    for (const CharRange& all : all_chars()) {
      const char32_t low = std::max(r.low, all.low), high = std::min(r.high, all.high);
      if (low <= high) out.push_back({low, high});
    }
  return out;
}

CharSet complement(const CharSet& set) {
  CharSet out;
  char32_t next = 0;
  for (const CharRange& r : set) {
    if (r.low > next) out.push_back({next, r.low - 1});
    next = r.high + 1;
  }
  if (next <= 0x10FFFF) out.push_back({next, 0x10FFFF});
  return normal(std::move(out));
}

bool CharDfa::accepts(std::string_view utf8) const {
  if (states.empty()) return false;
  int at = 0;
  for (std::size_t i = 0; i < utf8.size() && at >= 0;) {
    const Utf8Char c = utf8_char(utf8, i);
    at = next_state(states[static_cast<std::size_t>(at)], c.value);
    i += c.length;
  }
  return at >= 0 && states[static_cast<std::size_t>(at)].accept;
}

CharDfa intersect(const CharDfa& a, const CharDfa& b) {
  CharDfa out;
  if (a.states.empty() || b.states.empty()) return out;
  std::map<std::pair<int, int>, int> known{{{0, 0}, 0}};
  std::deque<std::pair<int, int>> todo{{0, 0}};
  for (; !todo.empty(); todo.pop_front()) {
    const auto& x = a.states[static_cast<std::size_t>(todo.front().first)];
    const auto& y = b.states[static_cast<std::size_t>(todo.front().second)];
    CharDfa::State state{x.accept && y.accept, {}};
    for (auto i = x.edges.begin(), j = y.edges.begin(); i != x.edges.end() && j != y.edges.end();) {
      const char32_t low = std::max(i->low, j->low), high = std::min(i->high, j->high);
      if (low <= high) {
        const auto [it, fresh] = known.try_emplace({i->target, j->target}, static_cast<int>(known.size()));
        if (fresh) todo.emplace_back(i->target, j->target);
        if (known.size() > kMaxDfaStates) throw SchemaError("is too complex together with the other limits");
        state.edges.push_back({low, high, it->second});
      }
      const bool first = i->high < j->high;
      const bool both = i->high == j->high;
      if (first || both) ++i;
      if (!first) ++j;
    }
    out.states.push_back(std::move(state));
  }
  return trimmed(out);
}

CharDfa at_least(int n) {
  if (n >= static_cast<int>(kMaxDfaStates))
    throw SchemaError("is too long a string to be counted with a pattern");
  CharDfa out;
  out.states.resize(static_cast<std::size_t>(n) + 1);
  for (int i = 0; i <= n; ++i) add_any(out.states[static_cast<std::size_t>(i)], std::min(i + 1, n));
  out.states.back().accept = true;
  return out;
}

CharDfa none_of(std::span<const std::string> texts) {
  CharDfa out;
  out.states.resize(2);  // the start of the trie; everything that has left it
  std::vector<std::map<char32_t, int>> children(2);
  for (CharDfa::State& state : out.states) state.accept = true;
  for (const std::string& text : texts) {
    int at = 0;
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_char(text, i);
      i += c.length;
      const auto [it, fresh] =
          children[static_cast<std::size_t>(at)].try_emplace(c.value, static_cast<int>(children.size()));
      at = it->second;
      if (!fresh) continue;
      children.emplace_back();
      out.states.push_back({true, {}});
      if (children.size() > kMaxDfaStates) throw SchemaError("has too many property names");
    }
    out.states[static_cast<std::size_t>(at)].accept = false;
  }
  for (std::size_t s = 0; s < children.size(); ++s) {
    CharSet named;
    for (const auto& [c, target] : children[s]) {
      named.push_back({c, c});
      out.states[s].edges.push_back({c, c, target});
    }
    for (const CharRange& r : complement(normal(named))) out.states[s].edges.push_back({r.low, r.high, 1});
    std::sort(out.states[s].edges.begin(), out.states[s].edges.end(),
              [](const CharDfa::Edge& a, const CharDfa::Edge& b) { return a.low < b.low; });
  }
  return out;
}

std::vector<int> distance_to_accept(const CharDfa& dfa) {
  const std::size_t n = dfa.states.size();
  std::vector<std::vector<int>> sources(n);
  std::vector<int> distance(n, kNoWay);
  std::deque<int> todo;
  for (std::size_t s = 0; s < n; ++s) {
    for (const CharDfa::Edge& e : dfa.states[s].edges)
      sources[static_cast<std::size_t>(e.target)].push_back(static_cast<int>(s));
    if (!dfa.states[s].accept) continue;
    distance[s] = 0;
    todo.push_back(static_cast<int>(s));
  }
  for (; !todo.empty(); todo.pop_front()) {
    const auto at = static_cast<std::size_t>(todo.front());
    for (const int source : sources[at]) {
      int& d = distance[static_cast<std::size_t>(source)];
      if (d != kNoWay) continue;
      d = distance[at] + 1;
      todo.push_back(source);
    }
  }
  return distance;
}

CharDfa trimmed(const CharDfa& dfa) {
  CharDfa out;
  const std::vector<int> distance = distance_to_accept(dfa);
  if (dfa.states.empty() || distance[0] == kNoWay) return out;
  std::map<int, int> known{{0, 0}};
  std::deque<int> todo{0};
  for (; !todo.empty(); todo.pop_front()) {
    const CharDfa::State& from = dfa.states[static_cast<std::size_t>(todo.front())];
    CharDfa::State state{from.accept, {}};
    for (const CharDfa::Edge& e : from.edges) {
      if (distance[static_cast<std::size_t>(e.target)] == kNoWay) continue;
      const auto [it, fresh] = known.try_emplace(e.target, static_cast<int>(known.size()));
      if (fresh) todo.push_back(e.target);
      if (!state.edges.empty() && state.edges.back().target == it->second &&
          state.edges.back().high + 1 == e.low)
        state.edges.back().high = e.high;
      else
        state.edges.push_back({e.low, e.high, it->second});
    }
    out.states.push_back(std::move(state));
  }
  return out;
}

}  // namespace strata
