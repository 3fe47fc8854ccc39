#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace strata {

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens, bool normalized,
                                     const Normalizer& normalizer) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    std::string storage;
    const std::string_view text = normalized ? normalizer.apply(token.content, storage) : token.content;
    if (text.empty()) continue;
    trie_.insert(text, static_cast<int>(tokens_.size()));
    tokens_.push_back(token);
  }
}

const AddedToken* AddedTokenMatcher::match(std::string_view text, size_t at, size_t& length) const {
  const AddedToken* found = nullptr;
  trie_.prefixes(text.substr(at), [&](size_t n, int index) {
    found = &tokens_[static_cast<size_t>(index)];
    length = n;
  });
  return found;
}

std::vector<AddedTokenMatcher::Piece> AddedTokenMatcher::split(std::string_view text,
                                                               bool parse_special) const {
  std::vector<Piece> pieces;
  size_t done = 0;
  const auto put_text = [&](size_t end) {
    if (end > done) pieces.push_back({text.substr(done, end - done), -1});
  };
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    size_t length = 0;
    const AddedToken* token = trie_.starts_with(text[at]) ? match(text, at, length) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (token->special && !parse_special) continue;
    if (token->single_word) {
      const bool touches_left = begin > 0 && is_word(last_char(text.substr(0, begin)));
      const bool touches_right = end < text.size() && is_word(first_char(text.substr(end)));
      if (touches_left || touches_right) continue;
    }
    if (token->lstrip) begin = std::max(done, begin - trailing_white_space(text.substr(0, begin)));
    if (token->rstrip) end += leading_white_space(text.substr(end));
    put_text(begin);
    pieces.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  put_text(text.size());
  return pieces;
}

}  // namespace strata
