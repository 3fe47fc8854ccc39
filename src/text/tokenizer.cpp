#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/tokenizer_components.h"
#include "text/utf8.h"
#include "text/word_cache.h"

namespace strata {

struct Tokenizer::State {
  explicit State(TokenizerComponents components);
  std::string_view token(int id) const;
  void encode_text(std::string_view text, bool at_start, std::vector<int>& out) const;
  void encode_word(std::string_view word, std::vector<int>& out) const;

  TokenizerComponents parts;
  AddedTokenMatcher raw_matcher, normalized_matcher;
  std::unordered_map<int, size_t> added_by_id;  // index into parts.added
  std::unordered_map<std::string, int> added_by_content;
  std::string bytes;              // of all tokens, one after another
  std::vector<uint32_t> offsets;  // token id has bytes[offsets[id], offsets[id + 1])
  WordCache cache;
};

Tokenizer::State::State(TokenizerComponents components)
    : parts(std::move(components)),
      raw_matcher(parts.added, false, parts.normalizer),
      normalized_matcher(parts.added, true, parts.normalizer) {
  int size = parts.vocabulary->size();
  for (size_t i = 0; i < parts.added.size(); ++i) {
    added_by_id[parts.added[i].id] = i;
    added_by_content[parts.added[i].content] = parts.added[i].id;
    size = std::max(size, parts.added[i].id + 1);
  }
  offsets.reserve(static_cast<size_t>(size) + 1);
  offsets.push_back(0);
  for (int id = 0; id < size; ++id) {
    bytes += parts.decoder.bytes(token(id), false);
    offsets.push_back(static_cast<uint32_t>(bytes.size()));
  }
}

std::string_view Tokenizer::State::token(int id) const {
  if (const auto added = added_by_id.find(id); added != added_by_id.end())
    return parts.added[added->second].content;
  return parts.vocabulary->contains(id) ? parts.vocabulary->token(id) : std::string_view{};
}

void Tokenizer::State::encode_text(std::string_view text, bool at_start, std::vector<int>& out) const {
  Words words;
  words.text = text;
  words.at_start = at_start;
  parts.pre_tokenizer.apply(words);
  for (size_t i = 0; i < words.spans.size(); ++i) encode_word(words.word(i), out);
}

void Tokenizer::State::encode_word(std::string_view word, std::vector<int>& out) const {
  if (cache.find(word, out)) return;
  const size_t before = out.size();
  parts.model->encode(word, out);
  cache.keep(word, out.data() + before, out.size() - before);
}

Tokenizer::Tokenizer(TokenizerComponents components)
    : state_(std::make_unique<State>(std::move(components))) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  std::vector<int> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special) ids = state_->parts.prefix;
  std::string storage;
  for (const auto& raw : state_->raw_matcher.split(text, options.parse_special)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    bool at_start = raw.text.data() == text.data();
    const std::string_view normal = state_->parts.normalizer.apply(raw.text, storage);
    for (const auto& piece : state_->normalized_matcher.split(normal, options.parse_special)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        state_->encode_text(piece.text, at_start, ids);
      }
      at_start = false;
    }
  }
  if (options.add_special) ids.insert(ids.end(), state_->parts.suffix.begin(), state_->parts.suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, {.skip_special = skip_special});
  std::string text;
  for (const int id : ids) detokenizer.add(id, text);
  detokenizer.finish(text);
  return text;
}

int Tokenizer::vocab_size() const { return static_cast<int>(state_->offsets.size()) - 1; }

const TokenDecoder& Tokenizer::decoder() const { return state_->parts.decoder; }

std::optional<int> Tokenizer::token_to_id(std::string_view token) const {
  const auto added = state_->added_by_content.find(std::string(token));
  if (added != state_->added_by_content.end()) return added->second;
  const int id = state_->parts.vocabulary->find(token);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

std::string_view Tokenizer::id_to_token(int id) const { return state_->token(id); }

std::string_view Tokenizer::id_to_bytes(int id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const size_t begin = state_->offsets[static_cast<size_t>(id)],
               end = state_->offsets[static_cast<size_t>(id) + 1];
  return std::string_view(state_->bytes).substr(begin, end - begin);
}

std::string Tokenizer::first_bytes(int id) const {
  return state_->parts.decoder.bytes(id_to_token(id), true);
}

bool Tokenizer::is_special(int id) const {
  const auto added = state_->added_by_id.find(id);
  return added != state_->added_by_id.end() && state_->parts.added[added->second].special;
}

}  // namespace strata
