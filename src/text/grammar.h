// Grammars over bytes: rules that read bytes, call one another and count, and the states of matching a text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "text/char_dfa.h"

namespace strata {

using ByteSet = std::array<std::uint64_t, 4>;
ByteSet byte_range(int low, int high);  // both included
ByteSet bytes_of(std::string_view bytes);
ByteSet without(ByteSet set, std::string_view bytes);
inline bool contains(const ByteSet& set, std::uint8_t byte) {
  return (set[byte / 64] >> (byte % 64) & 1) != 0;
}
bool meets(const ByteSet& a, const ByteSet& b);

inline constexpr int kNoLimit = std::numeric_limits<int>::max();

// A program of nodes. Each activation of a rule has one counter, which begins at 0.
struct GrammarNode {
  enum class Kind : std::uint8_t {
    kBytes,    // takes a byte of set `arg`, then `next`
    kSplit,    // `next` or `other`
    kCall,     // rule `arg`, then `next`
    kReturn,   // the rule is done
    kCount,    // adds 1; dies when that is more than `arg`
    kAtLeast,  // dies when the counter is below `arg`
  };
  Kind kind = Kind::kReturn;
  bool text = false;  // kBytes: the head of a loop that takes any plain characters (JsonText)
  bool free = false;  // kBytes: text without form, where special tokens may stand
  int next = -1, other = -1, arg = 0;
  int rule = 0;
  int depth = kNoWay;  // calls inside calls that the shortest way from here to the end of the rule needs
};

struct GrammarRule {
  int start = -1;
  int min = 0;           // of its kAtLeast
  int limit = kNoLimit;  // the lowest of its kCount
};

// Immutable once built, so shared by threads. `starts` is where a text begins.
struct Grammar {
  std::vector<GrammarNode> nodes;
  std::vector<GrammarRule> rules;
  std::vector<ByteSet> sets;
  int root = 0;  // a rule
};

// Builds from the end to the beginning: what takes a node `next` gives the node to enter. kDead is a node
// that nothing can follow; it is taken everywhere and makes what leads to it dead.
class GrammarBuilder {
 public:
  static constexpr int kDead = -1;

  int declare();           // a rule, to be defined later
  void begin(int rule);    // nodes added from here on are this rule's
  void define(int start);  // of the rule begun

  int end();
  int bytes(const ByteSet& set, int next);
  int literal(std::string_view text, int next);
  int either(int a, int b);
  int call(int rule, int next);
  int count(int limit, int next);
  int at_least(int min, int next);
  // A place for loops: first referred to, then filled.
  int placeholder();
  void fill(int placeholder, int node);
  void mark_text(int node) { at(node).text = true; }
  void mark_free(int node) { at(node).free = true; }

  std::size_t size() const { return grammar_.nodes.size(); }
  // Throws SchemaError when a rule calls itself before it takes a byte, when no text matches, or when the
  // grammar is too large.
  Grammar build(int root);

 private:
  GrammarNode& at(int node) { return grammar_.nodes[static_cast<std::size_t>(node)]; }
  int add(GrammarNode::Kind kind, int next, int other, int arg);
  void find_depths();
  void refuse_left_recursion() const;

  Grammar grammar_;
  std::map<ByteSet, int> sets_;
  int rule_ = 0;
};

// Where a text stands in a grammar: a set of threads, each a node, a counter and the calls it will return to.
// A value, some tens of bytes for most grammars. Every thread can still end: what would lead nowhere is never
// entered.
class GrammarState {
 public:
  // Calls inside calls at most; what would need more is not allowed.
  static constexpr int kMaxDepth = 256;
  // Threads at most; the ways a text can be read beyond them are dropped.
  static constexpr int kMaxThreads = 1024;
  struct Frame {
    int node, count;
    auto operator<=>(const Frame&) const = default;
  };
  struct Thread {
    int node, count;  // node: of kind kBytes, or -1 at the end of the text
    std::vector<Frame> calls;
    auto operator<=>(const Thread&) const = default;
  };

  GrammarState() = default;
  static GrammarState start(const Grammar& grammar);

  bool dead() const { return threads_.empty(); }
  // The text may end here.
  bool complete() const;
  // Nothing but the end may come.
  bool closed() const { return threads_.size() == 1 && complete(); }
  // Special tokens may come: the place is in text without form.
  bool free(const Grammar& grammar) const;
  void step(const Grammar& grammar, std::uint8_t byte);
  // False, and the state is dead, when the bytes are not allowed.
  bool take(const Grammar& grammar, std::string_view bytes);

  // The same state with counters that tell apart only what `window` more bytes can.
  GrammarState canonical(const Grammar& grammar, int window) const;
  std::span<const Thread> threads() const { return threads_; }
  std::vector<int> key() const;

 private:
  static void enter(const Grammar& grammar, Thread thread, std::vector<Thread>& out);
  static void sort(std::vector<Thread>& threads);

  std::vector<Thread> threads_;  // in order, no two equal
};

}  // namespace strata
