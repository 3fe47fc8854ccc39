#include "text/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "text/bpe.h"
#include "text/utf8.h"

namespace strata {
namespace {

// An unknown character scores this much below the rarest token (kUnkPenalty of SentencePiece).
constexpr double kUnkPenalty = 10.0;

}  // namespace

Unigram::Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                 const std::vector<bool>& pieces, int unk_id, bool byte_fallback)
    : vocabulary_(std::move(vocabulary)),
      scores_(std::move(scores)),
      byte_tokens_(find_byte_tokens(*vocabulary_)),
      unk_id_(unk_id),
      byte_fallback_(byte_fallback) {
  const auto size = static_cast<size_t>(vocabulary_->size());
  STRATA_CHECK(scores_.size() == size && pieces.size() == size, "tokens {}, scores {}, pieces {}", size,
               scores_.size(), pieces.size());
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < size; ++id) {
    if (!vocabulary_->contains(static_cast<int>(id))) continue;
    lowest = std::min(lowest, scores_[id]);
    if (pieces[id]) trie_.insert(vocabulary_->token(static_cast<int>(id)), static_cast<int>(id));
  }
  unk_score_ = lowest - kUnkPenalty;
}

std::vector<Unigram::Piece> Unigram::best_path(std::string_view word) const {
  struct Node {  // the best path that ends at a byte
    double score = 0;
    size_t begin = std::string_view::npos;  // of its last piece; npos: no path yet
    int id = -1;
  };
  std::vector<Node> best(word.size() + 1);
  const auto offer = [&best](size_t begin, size_t end, int id, double score) {
    Node& node = best[end];
    const double sum = score + best[begin].score;
    if (node.begin == std::string_view::npos || sum > node.score) node = {sum, begin, id};
  };
  for (size_t at = 0; at < word.size();) {
    const size_t length = utf8_length(word[at]);
    bool single = false;  // some token is just this character
    trie_.prefixes(word.substr(at), [&](size_t n, int id) {
      offer(at, at + n, id, scores_[static_cast<size_t>(id)]);
      single = single || n == length;
    });
    if (!single) offer(at, at + length, unk_id_, unk_score_);
    at += length;
  }
  std::vector<Piece> pieces;
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    const Node& node = best[end];
    if (node.id == unk_id_ && !pieces.empty() && pieces.back().id == unk_id_) {
      pieces.back().begin = node.begin;  // a run of unknown characters is one piece
    } else {
      pieces.push_back({node.begin, end, node.id});
    }
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

void Unigram::encode(std::string_view word, std::vector<int>& out) const {
  for (const Piece& piece : best_path(word)) {
    if (piece.id != unk_id_) {
      out.push_back(piece.id);
      continue;
    }
    const std::string_view text = word.substr(piece.begin, piece.end - piece.begin);
    // An unknown run may still spell a token as a whole; the reference looks it up too.
    if (const int id = vocabulary_->find(text); id >= 0) {
      out.push_back(id);
    } else {
      put_unknown(text, out);
    }
  }
}

void Unigram::put_unknown(std::string_view text, std::vector<int>& out) const {
  const auto token_of = [this](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) { return token_of(c) >= 0; })) {
    for (const char c : text) out.push_back(token_of(c));
  } else if (unk_id_ >= 0) {
    out.push_back(unk_id_);
  }
}

}  // namespace strata
