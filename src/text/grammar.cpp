#include "text/grammar.h"

#include <algorithm>

#include "base/check.h"

namespace strata {
namespace {

using Kind = GrammarNode::Kind;
constexpr std::size_t kMaxNodes = 500'000;

}  // namespace

ByteSet byte_range(int low, int high) {
  ByteSet set{};
  for (int b = low; b <= high; ++b) set[static_cast<std::size_t>(b / 64)] |= std::uint64_t{1} << (b % 64);
  return set;
}

ByteSet bytes_of(std::string_view bytes) {
  ByteSet set{};
  for (const char c : bytes) {
    const auto b = static_cast<std::uint8_t>(c);
    set[b / 64] |= std::uint64_t{1} << (b % 64);
  }
  return set;
}

ByteSet without(ByteSet set, std::string_view bytes) {
  const ByteSet out = bytes_of(bytes);
  for (std::size_t i = 0; i < set.size(); ++i) set[i] &= ~out[i];
  return set;
}

bool meets(const ByteSet& a, const ByteSet& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if ((a[i] & b[i]) != 0) return true;
  return false;
}

int GrammarBuilder::declare() {
  grammar_.rules.push_back({});
  return static_cast<int>(grammar_.rules.size()) - 1;
}

void GrammarBuilder::begin(int rule) { rule_ = rule; }

void GrammarBuilder::define(int start) { grammar_.rules[static_cast<std::size_t>(rule_)].start = start; }

int GrammarBuilder::add(Kind kind, int next, int other, int arg) {
  if (grammar_.nodes.size() >= kMaxNodes) throw SchemaError("is too large");
  GrammarNode node;
  node.kind = kind;
  node.next = next;
  node.other = other;
  node.arg = arg;
  node.rule = rule_;
  grammar_.nodes.push_back(node);
  return static_cast<int>(grammar_.nodes.size()) - 1;
}

int GrammarBuilder::end() { return add(Kind::kReturn, kDead, kDead, 0); }

int GrammarBuilder::bytes(const ByteSet& set, int next) {
  if (next == kDead || set == ByteSet{}) return kDead;
  const auto [it, fresh] = sets_.try_emplace(set, static_cast<int>(grammar_.sets.size()));
  if (fresh) grammar_.sets.push_back(set);
  return add(Kind::kBytes, next, kDead, it->second);
}

int GrammarBuilder::literal(std::string_view text, int next) {
  for (std::size_t i = text.size(); i-- > 0;) next = bytes(bytes_of(text.substr(i, 1)), next);
  return next;
}

int GrammarBuilder::either(int a, int b) {
  if (a == kDead) return b;
  return b == kDead ? a : add(Kind::kSplit, a, b, 0);
}

int GrammarBuilder::call(int rule, int next) {
  return next == kDead ? kDead : add(Kind::kCall, next, kDead, rule);
}

int GrammarBuilder::count(int limit, int next) {
  if (next == kDead || limit <= 0) return kDead;
  GrammarRule& rule = grammar_.rules[static_cast<std::size_t>(rule_)];
  rule.limit = std::min(rule.limit, limit);
  return add(Kind::kCount, next, kDead, limit);
}

int GrammarBuilder::at_least(int min, int next) {
  if (next == kDead || min <= 0) return next;
  GrammarRule& rule = grammar_.rules[static_cast<std::size_t>(rule_)];
  rule.min = std::max(rule.min, min);
  return add(Kind::kAtLeast, next, kDead, min);
}

int GrammarBuilder::placeholder() { return add(Kind::kSplit, kDead, kDead, 0); }

void GrammarBuilder::fill(int placeholder, int node) { at(placeholder).next = node; }

// The least solution of: bytes and counts need what follows needs; a split the better of its ways; a call one
// more than the rule it calls, or what follows if that is more.
void GrammarBuilder::find_depths() {
  const std::size_t n = grammar_.nodes.size();
  std::vector<std::vector<int>> users(n);  // nodes whose depth follows from a node's
  std::vector<int> todo;
  const auto use = [&](int node, std::size_t user) {
    if (node >= 0) users[static_cast<std::size_t>(node)].push_back(static_cast<int>(user));
  };
  for (std::size_t i = 0; i < n; ++i) {
    const GrammarNode& node = grammar_.nodes[i];
    use(node.next, i);
    use(node.other, i);
    if (node.kind == Kind::kCall) use(grammar_.rules[static_cast<std::size_t>(node.arg)].start, i);
    if (node.kind == Kind::kReturn) todo.push_back(static_cast<int>(i));
  }
  const auto depth_of = [&](int node) { return node < 0 ? kNoWay : at(node).depth; };
  while (!todo.empty()) {
    GrammarNode& node = at(todo.back());
    const int index = todo.back();
    todo.pop_back();
    int depth = depth_of(node.next);
    if (node.kind == Kind::kReturn) depth = 0;
    if (node.kind == Kind::kSplit) depth = std::min(depth, depth_of(node.other));
    if (node.kind == Kind::kCall) {
      const int inner = depth_of(grammar_.rules[static_cast<std::size_t>(node.arg)].start);
      depth = inner == kNoWay ? kNoWay : std::max(depth, inner + 1);
    }
    if (depth >= node.depth) continue;
    node.depth = depth;
    const auto& affected = users[static_cast<std::size_t>(index)];
    todo.insert(todo.end(), affected.begin(), affected.end());
  }
}

void GrammarBuilder::refuse_left_recursion() const {
  // Rules called before a byte is taken; no rule is empty, so what follows a call need not be looked at.
  const std::size_t n = grammar_.rules.size();
  std::vector<std::vector<int>> calls(n);
  for (std::size_t r = 0; r < n; ++r) {
    std::vector<int> todo{grammar_.rules[r].start}, seen;
    while (!todo.empty()) {
      const int at = todo.back();
      todo.pop_back();
      if (at < 0 || std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
      seen.push_back(at);
      const GrammarNode& node = grammar_.nodes[static_cast<std::size_t>(at)];
      if (node.kind == Kind::kCall) calls[r].push_back(node.arg);
      if (node.kind != Kind::kBytes && node.kind != Kind::kCall) {
        todo.push_back(node.next);
        todo.push_back(node.other);
      }
    }
  }
  std::vector<int> callers(n, 0);
  for (const auto& called : calls)
    for (const int r : called) ++callers[static_cast<std::size_t>(r)];
  std::vector<std::size_t> todo;
  std::size_t sorted = 0;
  for (std::size_t r = 0; r < n; ++r)
    if (callers[r] == 0) todo.push_back(r);
  while (!todo.empty()) {
    const std::size_t at = todo.back();
    todo.pop_back();
    ++sorted;
    for (const int r : calls[at])
      if (--callers[static_cast<std::size_t>(r)] == 0) todo.push_back(static_cast<std::size_t>(r));
  }
  if (sorted < n) throw SchemaError("refers to itself without an object or array between");
}

Grammar GrammarBuilder::build(int root) {
  grammar_.root = root;
  refuse_left_recursion();
  find_depths();
  const int start = grammar_.rules[static_cast<std::size_t>(root)].start;
  if (start < 0 || at(start).depth > GrammarState::kMaxDepth) throw SchemaError("allows no value");
  return std::move(grammar_);
}

}  // namespace strata
