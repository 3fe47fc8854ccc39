// Tokens that are cut out of the text whole, before the model sees it: <|im_end|>, <think>, ...
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/normalizer.h"

namespace strata {

struct AddedToken {
  int id = -1;
  std::string content;
  bool single_word = false;  // matches only where no word character touches it
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;       // and on its right
  bool normalized = false;   // is looked for in the normalised text, in its own normalised form
  bool special = false;      // control token: matched only if asked, skipped when decoding
};

// Finds a set of added tokens: the leftmost, and of those the longest. Immutable, so shared by threads.
class AddedTokenMatcher {
 public:
  struct Piece {
    std::string_view text;
    int id;  // of the added token, -1 for text
  };

  // Takes those of `tokens` with this value of `normalized`.
  AddedTokenMatcher(const std::vector<AddedToken>& tokens, bool normalized, const Normalizer& normalizer);

  // Cuts valid UTF-8 into added tokens and the text between them. Without `parse_special` the special ones
  // stay text.
  std::vector<Piece> split(std::string_view text, bool parse_special) const;

 private:
  // The token that starts at `at`, or nullptr; `length` in bytes.
  const AddedToken* match(std::string_view text, size_t at, size_t& length) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
};

}  // namespace strata
