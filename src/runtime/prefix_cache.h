// PrefixCache: a tree of whole pages, with snapshots of the recurrent state at some of its nodes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/ref_pool.h"

namespace strata {

// What a prompt can take over. The caller owns one reference to each page and to the slot.
struct PrefixHit {
  int tokens = 0;             // usable: covered by pages and, for recurrent models, by a snapshot
  int matched = 0;            // covered by pages alone; > tokens: a snapshot at `matched` would have helped
  std::vector<int> pages;     // tokens / kPageTokens
  int slot = -1;              // snapshot of the state after `tokens` tokens, never written
  const char* reason = "";    // why nothing was taken: short, unknown, no_snapshot; "" on a hit
};

// Each node stands for one full page: its tokens after its ancestors'. One thread. The cache holds a reference to what it
// keeps; what others refer to as well is in use and not evicted. What is given back counts as used until then, and whoever
// uses a path gives its deepest page back first, so that the least recently used node is a leaf.
class PrefixCache {
 public:
  // `needs_state`: the model has recurrent layers, so only nodes with a snapshot can be resumed from.
  PrefixCache(RefPool& pages, RefPool& slots, bool needs_state);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The deepest usable prefix of `tokens` that leaves at least one of them to compute. `root` separates adapters and salts.
  PrefixHit match(const std::string& root, std::span<const int> tokens);
  // Offers the full pages of a sequence; those already known stay as they are. tokens.size() >= pages.size() * kPageTokens.
  void insert(const std::string& root, std::span<const int> tokens, std::span<const int> pages);
  // Adds one page after ancestors that are there: tokens.size() is whole pages, `page` holds the last of them. False, and
  // nothing changes, when an ancestor is missing or the page is known.
  bool append(const std::string& root, std::span<const int> tokens, int page);
  // Hangs a snapshot of the state after all of `tokens` (whole pages, inserted before) on its node; keeps its own reference.
  // False when the node is not there or has one already.
  bool attach(const std::string& root, std::span<const int> tokens, int slot);

  // Frees the least recently used page (and the snapshot on it) or snapshot that nobody else uses. False: there is none.
  bool evict_page();
  bool evict_slot();
  void clear();               // forgets all that is not in use elsewhere, and the rest too (references are given back)

  int pages() const { return pages_; }
  int snapshots() const { return snapshots_; }
  int evictable_pages() const { return page_pool_.kept_alone(); }  // held by the cache alone
  // For saving and tests: every node as (root, tokens from the root, page, slot), parents first.
  struct Entry {
    std::string root;
    std::vector<int> tokens;
    int page, slot;
  };
  std::vector<Entry> entries() const;

 private:
  struct Node {
    Node* parent = nullptr;              // null at a root
    const std::string* root = nullptr;   // of a root: its key
    std::vector<int> tokens;            // kPageTokens
    std::uint64_t hash = 0;
    int page = -1, slot = -1;
    std::unordered_multimap<std::uint64_t, std::unique_ptr<Node>> children;
  };

  Node* child(Node& node, std::span<const int> page_tokens) const;
  Node& root_node(const std::string& root);
  Node* add_child(Node& parent, std::span<const int> page_tokens, int page);
  void touch(Node* node);               // the node and its ancestors become the most recently used
  void drop_slot(Node& node);
  void remove(Node* leaf);

  RefPool& page_pool_;
  RefPool& slot_pool_;
  bool needs_state_;
  int pages_ = 0, snapshots_ = 0;
  std::vector<Node*> of_page_, of_slot_;  // null: not the cache's
  std::map<std::string, Node> roots_;
};

}  // namespace strata
