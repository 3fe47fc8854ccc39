#include "text/byte_trie.h"

#include <utility>

namespace strata {

ByteTrie::ByteTrie() : roots_(256, -1), values_(1, -1), edges_(64), mask_(63) {}

void ByteTrie::grow() {
  std::vector<Edge> old(edges_.size() * 2);
  old.swap(edges_);
  mask_ = edges_.size() - 1;
  for (const Edge& edge : old) {
    if (edge.child >= 0) edges_[find_slot(edge.key)] = edge;
  }
}

void ByteTrie::insert(std::string_view key, int value) {
  int node = 0;
  for (const char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    int next = child(node, byte);
    if (next < 0) {
      next = static_cast<int>(values_.size());
      values_.push_back(-1);
      if (node == 0) {
        roots_[byte] = next;
      } else {
        if (++used_ * 2 > edges_.size()) grow();
        const uint64_t edge = static_cast<uint64_t>(node) << 8 | byte;
        edges_[find_slot(edge)] = {edge, next};
      }
    }
    node = next;
  }
  values_[static_cast<size_t>(node)] = value;
}

}  // namespace strata
