// Which tokens may follow a text in a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar.h"
#include "text/tokenizer.h"

namespace strata {

// The tokens of a vocabulary sorted by their bytes, for one walk over all of them. Immutable, so shared by
// threads.
class TokenTree {
 public:
  struct Token {
    std::string_view bytes;  // empty: never allowed
    bool special = false;    // allowed in free text only
  };
  // tokens[id]; the views are not kept.
  explicit TokenTree(std::span<const Token> tokens);
  explicit TokenTree(const Tokenizer& tokenizer);

  // A node for each distinct beginning of a token, in the order of a walk that goes deep first.
  struct Node {
    std::uint32_t after;  // the node that follows this one's descendants
    std::uint32_t first;  // tokens_[first, first + count) are the tokens that end here
    std::uint16_t depth;  // bytes
    std::uint8_t count, byte;
  };
  struct Part {
    std::vector<Node> nodes;
    std::vector<int> tokens;
  };
  // Plain text: whole characters that a JSON string takes as they are, up to kPlainChars of them.
  static constexpr int kPlainChars = 32;
  const Part& plain() const { return plain_; }
  // All other tokens but the special ones.
  const Part& rest() const { return rest_; }
  const Part& special() const { return special_; }
  // Bits of the plain tokens of at most n characters, n in [1, kPlainChars].
  std::span<const std::uint32_t> plain_up_to(int n) const {
    return plain_masks_[static_cast<std::size_t>(n) - 1];
  }

  int longest() const { return longest_; }      // bytes of a token
  std::size_t words() const { return words_; }  // of a mask

 private:
  Part plain_, rest_, special_;
  std::vector<std::vector<std::uint32_t>> plain_masks_;
  int longest_ = 1;
  std::size_t words_ = 0;
};

// Masks of one grammar, kept by state, so that a mask mostly costs a copy. Not for several threads at once.
class TokenMasks {
 public:
  // Both must outlive it.
  TokenMasks(const Grammar& grammar, const TokenTree& tree);
  ~TokenMasks();

  // Sets the bits of the tokens that may follow in `mask` (32 tokens a word, lowest bit first, zeroed
  // before). Tokens beyond the mask are left out.
  void allowed(const GrammarState& state, std::span<std::uint32_t> mask);

  // What is kept may take so much memory; beyond it all of it is dropped.
  void set_budget(std::size_t bytes) { budget_ = bytes; }
  std::size_t kept_states() const { return states_.size(); }

 private:
  struct State;
  struct Hash {
    std::size_t operator()(const std::vector<int>& key) const;
  };
  int id_of(const GrammarState& state);
  int next(int id, std::uint8_t byte);
  void fill(int id);
  void walk(int from, const TokenTree::Part& part, std::vector<std::uint32_t>& mask);
  // Characters of plain text that are allowed from here without looking at each token; 0: look at each.
  int plain_room(const GrammarState& state) const;

  const Grammar& grammar_;
  const TokenTree& tree_;
  std::unordered_map<std::vector<int>, int, Hash> ids_;
  std::vector<std::unique_ptr<State>> states_;
  std::vector<int> path_;  // of a walk: the state after each byte
  std::size_t budget_ = std::size_t{32} << 20, used_ = 0;
};

}  // namespace strata
