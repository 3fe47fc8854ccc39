// Text to token ids and back.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_components.h"
#include "text/tokenizer_parts.h"
#include "text/word_cache.h"

namespace strata {

struct EncodeOptions {
  bool add_special = true;    // put the tokens around the text that the model expects (begin of text, ...)
  bool parse_special = true;  // text that spells a special token is that token; false for untrusted text
};

// Immutable once loaded (but for a cache that locks), so any number of threads share one. Detokenizers and
// views it returns must not outlive it.
class Tokenizer {
 public:
  // Reads a Hugging Face tokenizer.json. Throws Error naming the file and what in it is not understood.
  static Tokenizer from_json_file(const std::filesystem::path& path);
  // The same from its text; `source` names it in errors.
  static Tokenizer from_json(std::string_view json, std::string_view source);
  // Builds one from tokens in memory. Throws Error naming `source`.
  static Tokenizer from_parts(const TokenizerParts& parts, std::string_view source);

  explicit Tokenizer(TokenizerComponents components);

  // Token ids of the text. Ill-formed UTF-8 counts as U+FFFD.
  std::vector<int> encode(std::string_view text, EncodeOptions options = {}) const;
  // The text of ids, valid UTF-8: what a Detokenizer fed with them says. Ids that do not exist are skipped.
  std::string decode(std::span<const int> ids, bool skip_special) const;

  // One more than the highest id.
  int vocab_size() const { return static_cast<int>(offsets_.size()) - 1; }
  std::optional<int> token_to_id(std::string_view token) const;
  // The token as the vocabulary writes it; empty for an id that does not exist.
  std::string_view id_to_token(int id) const;
  // The bytes the token adds to a text, maybe part of a character; empty for an id that does not exist.
  std::string_view id_to_bytes(int id) const;
  // The bytes of a token that starts a text, where some tokenizers drop a space.
  std::string first_bytes(int id) const;
  bool is_special(int id) const;

  const TokenDecoder& decoder() const { return parts_.decoder; }

 private:
  void encode_text(std::string_view text, bool at_start, std::vector<int>& out) const;
  void encode_word(std::string_view word, std::vector<int>& out) const;

  TokenizerComponents parts_;
  std::unordered_map<int, size_t> added_by_id_;  // index into parts_.added
  std::unordered_map<std::string, int> added_by_content_;
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  std::string bytes_;              // of all tokens, one after another
  std::vector<uint32_t> offsets_;  // token id has bytes_[offsets_[id], offsets_[id + 1])
  std::unique_ptr<WordCache> cache_;
};

}  // namespace strata
