#include "runtime/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>

#include "ops/batch.h"

namespace strata {

PrefixCache::PrefixCache(RefPool& pages, RefPool& slots, bool needs_state)
    : page_pool_(pages), slot_pool_(slots), needs_state_(needs_state), of_page_(static_cast<std::size_t>(pages.total())),
      of_slot_(static_cast<std::size_t>(slots.total())) {}

PrefixCache::~PrefixCache() { clear(); }

PrefixCache::Node* PrefixCache::child(Node& node, std::span<const int> page_tokens) const {
  const std::uint64_t hash = XXH3_64bits(page_tokens.data(), page_tokens.size_bytes());
  const auto [begin, end] = node.children.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (std::equal(page_tokens.begin(), page_tokens.end(), it->second->tokens.begin())) return it->second.get();
  }
  return nullptr;
}

void PrefixCache::touch(Node* node) {
  for (; node->parent != nullptr; node = node->parent) {
    page_pool_.renew(node->page);
    if (node->slot >= 0) slot_pool_.renew(node->slot);
  }
}

PrefixHit PrefixCache::match(const std::string& root, std::span<const int> tokens) {
  PrefixHit hit;
  const std::size_t most = tokens.empty() ? 0 : (tokens.size() - 1) / kPageTokens;  // one token is left to compute
  if (most == 0) return hit.reason = "short", hit;
  const auto found = roots_.find(root);
  if (found == roots_.end()) return hit.reason = "unknown", hit;

  Node* node = &found->second;
  Node* usable = nullptr;
  std::vector<int> path;
  std::size_t depth = 0;
  while (path.size() < most) {
    Node* next = child(*node, tokens.subspan(path.size() * kPageTokens, kPageTokens));
    if (next == nullptr) break;
    node = next;
    path.push_back(node->page);
    if (!needs_state_ || node->slot >= 0) {
      usable = node;
      depth = path.size();
    }
  }
  hit.matched = static_cast<int>(path.size()) * kPageTokens;
  if (!path.empty()) touch(node);
  if (usable == nullptr) return hit.reason = path.empty() ? "unknown" : "no_snapshot", hit;

  path.resize(depth);
  hit.tokens = static_cast<int>(depth) * kPageTokens;
  for (const int page : path) page_pool_.retain(page);
  hit.pages = std::move(path);
  if (usable->slot >= 0) {
    hit.slot = usable->slot;
    slot_pool_.retain(hit.slot);
  }
  return hit;
}

PrefixCache::Node& PrefixCache::root_node(const std::string& root) {
  const auto at = roots_.try_emplace(root).first;
  at->second.root = &at->first;
  return at->second;
}

PrefixCache::Node* PrefixCache::add_child(Node& parent, std::span<const int> page_tokens, int page) {
  auto fresh = std::make_unique<Node>();
  Node* node = fresh.get();
  node->parent = &parent;
  node->tokens.assign(page_tokens.begin(), page_tokens.end());
  node->hash = XXH3_64bits(page_tokens.data(), page_tokens.size_bytes());
  node->page = page;
  page_pool_.retain(page);
  page_pool_.keep(page, true);
  of_page_[static_cast<std::size_t>(page)] = node;
  ++pages_;
  parent.children.emplace(node->hash, std::move(fresh));
  return node;
}

void PrefixCache::insert(const std::string& root, std::span<const int> tokens, std::span<const int> pages) {
  STRATA_CHECK(tokens.size() >= pages.size() * kPageTokens, "{} tokens for {} pages", tokens.size(), pages.size());
  if (pages.empty()) return;
  Node* node = &root_node(root);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto page_tokens = tokens.subspan(i * kPageTokens, kPageTokens);
    Node* next = child(*node, page_tokens);
    node = next != nullptr ? next : add_child(*node, page_tokens, pages[i]);
  }
  touch(node);
}

bool PrefixCache::append(const std::string& root, std::span<const int> tokens, int page) {
  STRATA_CHECK(!tokens.empty() && tokens.size() % kPageTokens == 0, "{} tokens are not whole pages", tokens.size());
  const bool first = tokens.size() == kPageTokens;
  const auto found = roots_.find(root);
  if (found == roots_.end() && !first) return false;
  Node* node = first ? &root_node(root) : &found->second;
  for (std::size_t at = 0; at + kPageTokens < tokens.size(); at += kPageTokens) {
    node = child(*node, tokens.subspan(at, kPageTokens));
    if (node == nullptr) return false;
  }
  const auto last = tokens.last(kPageTokens);
  if (child(*node, last) != nullptr) return false;
  touch(add_child(*node, last, page));
  return true;
}

bool PrefixCache::attach(const std::string& root, std::span<const int> tokens, int slot) {
  STRATA_CHECK(tokens.size() % kPageTokens == 0, "a snapshot after {} tokens is not at a page boundary", tokens.size());
  const auto found = roots_.find(root);
  if (found == roots_.end() || tokens.empty()) return false;
  Node* node = &found->second;
  for (std::size_t at = 0; at < tokens.size(); at += kPageTokens) {
    node = child(*node, tokens.subspan(at, kPageTokens));
    if (node == nullptr) return false;
  }
  if (node->slot >= 0) return false;
  node->slot = slot;
  slot_pool_.retain(slot);
  slot_pool_.keep(slot, true);
  of_slot_[static_cast<std::size_t>(slot)] = node;
  ++snapshots_;
  return true;
}

void PrefixCache::drop_slot(Node& node) {
  if (node.slot < 0) return;
  of_slot_[static_cast<std::size_t>(node.slot)] = nullptr;
  slot_pool_.keep(node.slot, false);
  slot_pool_.release(node.slot);
  node.slot = -1;
  --snapshots_;
}

void PrefixCache::remove(Node* leaf) {
  STRATA_CHECK(leaf->children.empty(), "eviction of a node with {} children", leaf->children.size());
  drop_slot(*leaf);
  of_page_[static_cast<std::size_t>(leaf->page)] = nullptr;
  page_pool_.keep(leaf->page, false);
  page_pool_.release(leaf->page);
  --pages_;
  auto& siblings = leaf->parent->children;
  const auto [begin, end] = siblings.equal_range(leaf->hash);
  Node* parent = leaf->parent;
  siblings.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == leaf; }));
  if (parent->parent == nullptr && parent->children.empty()) roots_.erase(roots_.find(*parent->root));
}

bool PrefixCache::evict_page() {
  for (int left = evictable_pages(); left > 0; --left) {
    Node* node = of_page_[static_cast<std::size_t>(page_pool_.oldest_kept_alone())];
    if (node->children.empty() && (node->slot < 0 || slot_pool_.refs(node->slot) == 1)) {
      remove(node);
      return true;
    }
    page_pool_.renew(node->page);  // what hangs on it is in use, or was given back after it
  }
  return false;
}

bool PrefixCache::evict_slot() {
  const int slot = slot_pool_.oldest_kept_alone();
  if (slot < 0) return false;
  drop_slot(*of_slot_[static_cast<std::size_t>(slot)]);
  return true;
}

void PrefixCache::clear() {
  while (!roots_.empty()) {
    Node* node = &roots_.begin()->second;
    if (node->children.empty()) {
      roots_.erase(roots_.begin());
      continue;
    }
    while (!node->children.empty()) node = node->children.begin()->second.get();
    for (bool more = true; more;) {  // up again, as far as nothing else hangs there
      Node* parent = node->parent;
      more = parent->parent != nullptr && parent->children.size() == 1;
      remove(node);
      node = parent;
    }
  }
}

std::vector<PrefixCache::Entry> PrefixCache::entries() const {
  std::vector<Entry> out;
  for (const auto& [root, top] : roots_) {
    std::vector<std::pair<const Node*, std::vector<int>>> todo;
    for (const auto& [hash, node] : top.children) todo.emplace_back(node.get(), node->tokens);
    for (std::size_t i = 0; i < todo.size(); ++i) {
      const auto [node, tokens] = todo[i];
      out.push_back({root, tokens, node->page, node->slot});
      for (const auto& [hash, next] : node->children) {
        auto longer = tokens;
        longer.insert(longer.end(), next->tokens.begin(), next->tokens.end());
        todo.emplace_back(next.get(), std::move(longer));
      }
    }
  }
  return out;
}

}  // namespace strata
