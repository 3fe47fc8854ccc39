#include "text/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace strata {

bool marks_only_lead(const Vocabulary& vocabulary) {
  if (vocabulary.find(kSpaceMark) < 0) return false;
  for (int id = 0; id < vocabulary.size(); ++id) {
    std::string_view token = vocabulary.token(id);
    while (token.starts_with(kSpaceMark)) token.remove_prefix(kSpaceMark.size());
    if (token.find(kSpaceMark) != std::string_view::npos) return false;
  }
  return true;
}

Tokenizer::Tokenizer(TokenizerComponents components)
    : parts_(std::move(components)),
      raw_matcher_(parts_.added, false, parts_.normalizer),
      normalized_matcher_(parts_.added, true, parts_.normalizer),
      cache_(std::make_unique<WordCache>()) {
  int size = parts_.vocabulary->size();
  for (size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& token = parts_.added[i];
    added_by_id_[token.id] = i;
    added_by_content_[token.content] = token.id;
    size = std::max(size, token.id + 1);
  }
  offsets_.reserve(static_cast<size_t>(size) + 1);
  offsets_.push_back(0);
  for (int id = 0; id < size; ++id) {
    bytes_ += parts_.decoder.bytes(id_to_token(id), false);
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
}

std::vector<int> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  std::vector<int> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special) ids = parts_.prefix;
  std::string storage;
  for (const auto& raw : raw_matcher_.split(text, options.parse_special)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    bool at_start = raw.text.data() == text.data();
    const std::string_view normal = parts_.normalizer.apply(raw.text, storage);
    for (const auto& piece : normalized_matcher_.split(normal, options.parse_special)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        encode_text(piece.text, at_start, ids);
      }
      at_start = false;
    }
  }
  if (options.add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

void Tokenizer::encode_text(std::string_view text, bool at_start, std::vector<int>& out) const {
  Words words;
  words.text = text;
  words.at_start = at_start;
  parts_.pre_tokenizer.apply(words);
  for (size_t i = 0; i < words.spans.size(); ++i) encode_word(words.word(i), out);
}

void Tokenizer::encode_word(std::string_view word, std::vector<int>& out) const {
  if (cache_->find(word, out)) return;
  const size_t before = out.size();
  parts_.model->encode(word, out);
  cache_->keep(word, out.data() + before, out.size() - before);
}

std::string Tokenizer::decode(std::span<const int> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, {.skip_special = skip_special});
  std::string text;
  for (const int id : ids) detokenizer.add(id, text);
  detokenizer.finish(text);
  return text;
}

std::optional<int> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto added = added_by_content_.find(std::string(token)); added != added_by_content_.end()) {
    return added->second;
  }
  const int id = parts_.vocabulary->find(token);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

std::string_view Tokenizer::id_to_token(int id) const {
  if (const auto added = added_by_id_.find(id); added != added_by_id_.end())
    return parts_.added[added->second].content;
  return parts_.vocabulary->contains(id) ? parts_.vocabulary->token(id) : std::string_view{};
}

std::string_view Tokenizer::id_to_bytes(int id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const size_t begin = offsets_[static_cast<size_t>(id)], end = offsets_[static_cast<size_t>(id) + 1];
  return std::string_view(bytes_).substr(begin, end - begin);
}

std::string Tokenizer::first_bytes(int id) const { return parts_.decoder.bytes(id_to_token(id), true); }

bool Tokenizer::is_special(int id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && parts_.added[added->second].special;
}

}  // namespace strata
