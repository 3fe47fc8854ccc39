// Unigram language model: a word is cut into the tokens whose log probabilities have the highest sum.
//
// Source: Kudo 2018, arXiv:1804.10959; ties and unknown characters as in the reference implementation.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace strata {

class Unigram : public WordModel {
 public:
  // scores[id]: log probability of each token; unk_id: for characters that are no token, -1 if there is none.
  // Tokens with pieces[id] false are never cut out of text.
  Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
          const std::vector<bool>& pieces, int unk_id, bool byte_fallback);
  void encode(std::string_view word, std::vector<int>& out) const override;

 private:
  struct Piece {
    size_t begin, end;
    int id;  // unk_id_ for a run of unknown characters
  };
  std::vector<Piece> best_path(std::string_view word) const;
  void put_unknown(std::string_view text, std::vector<int>& out) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  ByteTrie trie_;
  std::vector<double> scores_;
  double unk_score_;
  std::array<int, 256> byte_tokens_;
  int unk_id_;
  bool byte_fallback_;
};

}  // namespace strata
