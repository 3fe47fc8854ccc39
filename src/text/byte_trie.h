// A set of byte strings that finds all its members at a place of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata {

// Immutable once filled, so shared by threads.
class ByteTrie {
 public:
  ByteTrie();
  // A key that is not empty; of two equal keys the later value counts.
  void insert(std::string_view key, int value);

  // Calls visit(length, value) for every key that is a prefix of `text`, the shortest first.
  template <typename Visit>
  void prefixes(std::string_view text, const Visit& visit) const {
    int node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node < 0) return;
      if (values_[static_cast<size_t>(node)] >= 0) visit(i + 1, values_[static_cast<size_t>(node)]);
    }
  }
  // Whether any key starts with this byte.
  bool starts_with(char byte) const { return roots_[static_cast<uint8_t>(byte)] >= 0; }

 private:
  struct Edge {
    uint64_t key;    // node * 256 + byte
    int child = -1;  // -1: free
  };
  int child(int node, uint8_t byte) const {
    if (node == 0) return roots_[byte];
    const Edge& edge = edges_[find_slot(static_cast<uint64_t>(node) << 8 | byte)];
    return edge.child;
  }
  size_t find_slot(uint64_t key) const {
    size_t slot = key * 0x9E3779B97F4A7C15u >> 20 & mask_;  // Fibonacci hashing: 2^64 / golden ratio
    while (edges_[slot].child >= 0 && edges_[slot].key != key) slot = (slot + 1) & mask_;
    return slot;
  }
  void grow();

  std::vector<int> roots_;   // child of the root for each byte
  std::vector<int> values_;  // of each node, -1 if no key ends there
  std::vector<Edge> edges_;  // open addressing
  size_t used_ = 0;
  size_t mask_ = 0;
};

}  // namespace strata
