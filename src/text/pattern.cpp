// Thompson's construction and the subset construction; anchors are empty steps that only the first or the
// last place of a string may take.
#include "text/pattern.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "text/pattern_ast.h"

namespace strata {
namespace {

constexpr std::size_t kMaxNfaStates = 20000;

class Nfa {
 public:
  Nfa(const PatternNode& pattern, std::size_t& left) : work_(left) {
    // The pattern is found anywhere: any characters before and after it.
    const int accept = add(Kind::kAccept);
    const int after = loop_any(accept);
    start_ = loop_any(build(pattern, after));
  }

  CharDfa determinize() {
    const std::vector<char32_t> cuts = boundaries();
    CharDfa dfa;
    std::map<std::vector<int>, int> known{{{-1}, 0}};  // the start is a state of its own: ^ holds there alone
    std::deque<std::vector<int>> todo{closure({start_}, true, false)};
    const auto id_of = [&](std::vector<int> set) {
      const auto [it, fresh] = known.try_emplace(set, static_cast<int>(known.size()));
      if (fresh) todo.push_back(std::move(set));
      if (known.size() > kMaxDfaStates) throw SchemaError("pattern is too complex");
      return it->second;
    };
    for (; !todo.empty(); todo.pop_front()) {
      const std::vector<int> set = todo.front();
      CharDfa::State state;
      state.accept = accepts(set, dfa.states.empty());
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        std::vector<int> targets;
        for (const int s : set)
          if (at(s).kind == Kind::kChars && contains(at(s).chars, cuts[i])) targets.push_back(at(s).next);
        work(set.size());
        if (targets.empty()) continue;
        const int target = id_of(closure(std::move(targets), false, false));
        auto& edges = state.edges;
        if (!edges.empty() && edges.back().target == target && edges.back().high + 1 == cuts[i])
          edges.back().high = cuts[i + 1] - 1;
        else
          edges.push_back({cuts[i], cuts[i + 1] - 1, target});
      }
      dfa.states.push_back(std::move(state));
    }
    return trimmed(dfa);
  }

 private:
  enum class Kind : unsigned char { kChars, kSplit, kStart, kEnd, kAccept };
  struct State {
    Kind kind;
    int next = -1, other = -1;
    CharSet chars;
  };

  int add(Kind kind, int next = -1, int other = -1, CharSet chars = {}) {
    if (states_.size() >= kMaxNfaStates) throw SchemaError("pattern is too large");
    states_.push_back({kind, next, other, std::move(chars)});
    return static_cast<int>(states_.size()) - 1;
  }
  State& at(int s) { return states_[static_cast<std::size_t>(s)]; }

  int loop_any(int next) {
    const int split = add(Kind::kSplit, -1, next);
    const int chars = add(Kind::kChars, split, -1, all_chars());
    at(split).next = chars;
    return split;
  }

  int build(const PatternNode& node, int next) {
    work(1);
    switch (node.kind) {
      case PatternNode::Kind::kChars:
        return add(Kind::kChars, next, -1, node.chars);
      case PatternNode::Kind::kStart:
        return add(Kind::kStart, next);
      case PatternNode::Kind::kEnd:
        return add(Kind::kEnd, next);
      case PatternNode::Kind::kSequence:
        for (auto it = node.children.rbegin(); it != node.children.rend(); ++it) next = build(*it, next);
        return next;
      case PatternNode::Kind::kChoice: {
        int out = build(node.children.back(), next);
        for (auto it = std::next(node.children.rbegin()); it != node.children.rend(); ++it)
          out = add(Kind::kSplit, build(*it, next), out);
        return out;
      }
      case PatternNode::Kind::kRepeat:
        return repeat(node, next);
    }
    return next;
  }

  int repeat(const PatternNode& node, int next) {
    const PatternNode& inner = node.children.front();
    if (node.max < 0) {
      const int split = add(Kind::kSplit, -1, next);
      const int body = build(inner, split);
      at(split).next = body;
      next = split;
    }
    const int end = next;
    for (int i = node.min; i < node.max; ++i) {
      const int body = build(inner, next);
      next = add(Kind::kSplit, body, end);
    }
    for (int i = 0; i < node.min; ++i) next = build(inner, next);
    return next;
  }

  void work(std::size_t steps) {
    if (steps > work_) throw SchemaError("pattern is too complex");
    work_ -= steps;
  }

  // All states reached without a character, in order.
  std::vector<int> closure(std::vector<int> set, bool at_start, bool at_end) {
    mark_.resize(states_.size(), 0);
    ++round_;
    std::vector<int> out, todo = std::move(set);
    while (!todo.empty()) {
      const int s = todo.back();
      todo.pop_back();
      if (std::exchange(mark_[static_cast<std::size_t>(s)], round_) == round_) continue;
      out.push_back(s);
      const State& state = at(s);
      const bool open = state.kind == Kind::kSplit || (state.kind == Kind::kStart && at_start) ||
                        (state.kind == Kind::kEnd && at_end);
      if (open) todo.push_back(state.next);
      if (state.kind == Kind::kSplit) todo.push_back(state.other);
    }
    work(out.size());
    std::sort(out.begin(), out.end());
    return out;
  }

  bool accepts(const std::vector<int>& set, bool at_start) {
    for (const int s : closure(set, at_start, true))
      if (at(s).kind == Kind::kAccept) return true;
    return false;
  }

  static bool contains(const CharSet& set, char32_t c) {
    const auto after = std::upper_bound(set.begin(), set.end(), c,
                                        [](char32_t value, const CharRange& r) { return value < r.low; });
    return after != set.begin() && c <= std::prev(after)->high;
  }

  // Characters between two cuts are in the same sets.
  std::vector<char32_t> boundaries() const {
    std::vector<char32_t> cuts{0, 0x110000};
    for (const State& s : states_)
      for (const CharRange& r : s.chars) {
        cuts.push_back(r.low);
        cuts.push_back(r.high + 1);
      }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    return cuts;
  }

  std::vector<State> states_;
  int start_ = 0;
  std::vector<int> mark_;
  int round_ = 0;
  std::size_t& work_;  // steps left
};

}  // namespace

CharDfa pattern_dfa(std::string_view pattern, std::size_t& work) {
  return Nfa(parse_pattern(pattern), work).determinize();
}

}  // namespace strata
