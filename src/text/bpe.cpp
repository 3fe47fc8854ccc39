#include "text/bpe.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace strata {

std::array<int, 256> find_byte_tokens(const Vocabulary& vocabulary) {
  std::array<int, 256> tokens{};
  for (size_t byte = 0; byte < 256; ++byte) tokens[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
  return tokens;
}

Bpe::Bpe(std::shared_ptr<const Vocabulary> vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      options_(options),
      byte_tokens_(find_byte_tokens(*vocabulary_)) {
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, byte_level_char(static_cast<uint8_t>(byte)));
    char_tokens_[byte] = vocabulary_->find(text);
  }
}

bool Bpe::start_with_bytes(std::string_view word, std::vector<Symbol>& symbols) const {
  for (size_t i = 0; i < word.size(); ++i) {
    const int id = char_tokens_[static_cast<uint8_t>(word[i])];
    if (id < 0) return false;
    symbols.push_back({id, static_cast<uint32_t>(i), 1});
  }
  return true;
}

void Bpe::start_with_chars(std::string_view word, std::vector<Symbol>& symbols) const {
  Symbol unk{-1, 0, 0};  // waits for what follows, as a run may become one
  const auto put_unk = [&] {
    if (unk.length > 0) symbols.push_back(unk);
    unk.length = 0;
  };
  for (size_t at = 0; at < word.size();) {
    const size_t length = utf8_length(word[at]);
    const std::string_view text = word.substr(at, length);
    const auto begin = static_cast<uint32_t>(at);
    at += length;
    if (const int id = vocabulary_->find(text); id >= 0) {
      put_unk();
      symbols.push_back({id, begin, static_cast<uint32_t>(length)});
      continue;
    }
    const auto token_of = [this](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
    if (options_.byte_fallback &&
        std::all_of(text.begin(), text.end(), [&](char c) { return token_of(c) >= 0; })) {
      for (size_t i = 0; i < length; ++i)
        symbols.push_back({token_of(text[i]), begin + static_cast<uint32_t>(i), 1});
      continue;
    }
    if (options_.unk_id < 0) continue;
    if (!options_.fuse_unk) put_unk();
    if (unk.length == 0) unk = {options_.unk_id, begin, 0};
    unk.length += static_cast<uint32_t>(length);
  }
  put_unk();
}

void Bpe::encode(std::string_view word, std::vector<int>& out) const {
  std::string text;  // the word as token text
  if (options_.reads_bytes && options_.ignore_merges) append_byte_level(text, word);
  if (options_.ignore_merges) {
    if (const int id = vocabulary_->find(options_.reads_bytes ? text : word); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  if (!options_.reads_bytes) {
    start_with_chars(word, symbols);
  } else if (!start_with_bytes(word, symbols)) {
    symbols.clear();
    text.clear();
    append_byte_level(text, word);
    start_with_chars(text, symbols);
  }
  merge_symbols(symbols,
                [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  for (const Symbol& symbol : symbols) out.push_back(symbol.id);
}

ScoreBpe::ScoreBpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<float>& scores,
                   const std::vector<bool>& joins, int unk_id)
    : vocabulary_(std::move(vocabulary)), byte_tokens_(find_byte_tokens(*vocabulary_)), unk_id_(unk_id) {
  const auto size = static_cast<size_t>(vocabulary_->size());
  STRATA_CHECK(scores.size() == size && joins.size() == size, "tokens {}, scores {}, joins {}", size,
               scores.size(), joins.size());
  std::vector<float> order = scores;
  std::sort(order.begin(), order.end(), std::greater<>{});
  order.erase(std::unique(order.begin(), order.end()), order.end());
  ranks_.assign(size, Merge::kNone);
  for (size_t id = 0; id < size; ++id) {
    if (!joins[id]) continue;
    const auto place = std::lower_bound(order.begin(), order.end(), scores[id], std::greater<>{});
    ranks_[id] = static_cast<uint32_t>(place - order.begin());
  }
}

void ScoreBpe::encode(std::string_view word, std::vector<int>& out) const {
  const auto token_of = [this](std::string_view text) {
    const int id = vocabulary_->find(text);
    return id >= 0 && ranks_[static_cast<size_t>(id)] != Merge::kNone ? id : -1;
  };
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (size_t at = 0; at < word.size();) {
    const size_t length = utf8_length(word[at]);
    symbols.push_back(
        {token_of(word.substr(at, length)), static_cast<uint32_t>(at), static_cast<uint32_t>(length)});
    at += length;
  }
  merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) {
    const int id = token_of(word.substr(left.begin, left.length + right.length));
    return id < 0 ? Merge{} : Merge{ranks_[static_cast<size_t>(id)], id};
  });
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
      continue;
    }
    const std::string_view text = word.substr(symbol.begin, symbol.length);
    const bool as_bytes = std::all_of(text.begin(), text.end(),
                                      [this](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; });
    if (as_bytes) {
      for (const char c : text) out.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    } else if (unk_id_ >= 0) {
      out.push_back(unk_id_);
    }
  }
}

}  // namespace strata
