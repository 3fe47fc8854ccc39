// Matching: threads of a grammar over bytes.
#include <algorithm>

#include "text/grammar.h"

namespace strata {
namespace {

using Kind = GrammarNode::Kind;

const GrammarNode& node_at(const Grammar& grammar, int node) {
  return grammar.nodes[static_cast<std::size_t>(node)];
}

// A counter in the same relation to its rule's bounds for `window` more counts.
int canonical_count(const GrammarRule& rule, int count, int window) {
  if (rule.limit != kNoLimit && rule.limit - count < window) return count;
  if (count >= rule.min) return rule.min;
  return rule.min - count >= window ? 0 : count;
}

}  // namespace

GrammarState GrammarState::start(const Grammar& grammar) {
  GrammarState out;
  enter(grammar, {grammar.rules[static_cast<std::size_t>(grammar.root)].start, 0, {}}, out.threads_);
  sort(out.threads_);
  return out;
}

bool GrammarState::complete() const { return !threads_.empty() && threads_.front().node < 0; }

bool GrammarState::free(const Grammar& grammar) const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [&](const Thread& t) { return t.node >= 0 && node_at(grammar, t.node).free; });
}

void GrammarState::sort(std::vector<Thread>& threads) {
  if (threads.size() < 2) return;
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  if (threads.size() > kMaxThreads) threads.resize(kMaxThreads);
}

// Follows the nodes that take no byte.
void GrammarState::enter(const Grammar& grammar, Thread thread, std::vector<Thread>& out) {
  while (true) {
    if (out.size() > 4 * kMaxThreads) return;
    const GrammarNode& n = node_at(grammar, thread.node);
    if (n.depth == kNoWay || n.depth + static_cast<int>(thread.calls.size()) > kMaxDepth) return;
    switch (n.kind) {
      case Kind::kBytes:
        out.push_back(std::move(thread));
        return;
      case Kind::kSplit:
        if (n.other >= 0) {
          enter(grammar, {n.next, thread.count, thread.calls}, out);
          thread.node = n.other;
        } else {
          thread.node = n.next;
        }
        break;
      case Kind::kCall:
        thread.calls.push_back({n.next, thread.count});
        thread.node = grammar.rules[static_cast<std::size_t>(n.arg)].start;
        thread.count = 0;
        break;
      case Kind::kReturn:
        if (thread.calls.empty()) {
          out.push_back({-1, 0, {}});
          return;
        }
        thread.node = thread.calls.back().node;
        thread.count = thread.calls.back().count;
        thread.calls.pop_back();
        break;
      case Kind::kCount:
        if (thread.count >= n.arg) return;
        ++thread.count;
        thread.node = n.next;
        break;
      case Kind::kAtLeast:
        if (thread.count < n.arg) return;
        thread.node = n.next;
        break;
    }
  }
}

void GrammarState::step(const Grammar& grammar, std::uint8_t byte) {
  std::vector<Thread> next;
  for (Thread& thread : threads_) {
    if (thread.node < 0) continue;
    const GrammarNode& n = node_at(grammar, thread.node);
    if (!contains(grammar.sets[static_cast<std::size_t>(n.arg)], byte)) continue;
    enter(grammar, {n.next, thread.count, std::move(thread.calls)}, next);
  }
  sort(next);
  threads_ = std::move(next);
}

bool GrammarState::take(const Grammar& grammar, std::string_view bytes) {
  for (const char c : bytes) {
    if (dead()) break;
    step(grammar, static_cast<std::uint8_t>(c));
  }
  return !dead();
}

GrammarState GrammarState::canonical(const Grammar& grammar, int window) const {
  GrammarState out = *this;
  const auto fix = [&](int node, int& count) {
    const GrammarRule& rule = grammar.rules[static_cast<std::size_t>(node_at(grammar, node).rule)];
    count = canonical_count(rule, count, window);
  };
  for (Thread& thread : out.threads_) {
    if (thread.node >= 0) fix(thread.node, thread.count);
    for (Frame& frame : thread.calls) fix(frame.node, frame.count);
  }
  sort(out.threads_);
  return out;
}

std::vector<int> GrammarState::key() const {
  std::vector<int> out;
  for (const Thread& t : threads_) {
    out.push_back(static_cast<int>(t.calls.size()));
    out.push_back(t.node);
    out.push_back(t.count);
    for (const Frame& f : t.calls) {
      out.push_back(f.node);
      out.push_back(f.count);
    }
  }
  return out;
}

}  // namespace strata
