// Text to token ids and back.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_parts.h"

namespace strata {

struct TokenizerComponents;
class TokenDecoder;

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
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Token ids of the text. Ill-formed UTF-8 counts as U+FFFD.
  std::vector<int> encode(std::string_view text, EncodeOptions options = {}) const;
  // The text of ids, valid UTF-8: what a Detokenizer fed with them says. Ids that do not exist are skipped.
  std::string decode(std::span<const int> ids, bool skip_special) const;

  // One more than the highest id.
  int vocab_size() const;
  std::optional<int> token_to_id(std::string_view token) const;
  // The token as the vocabulary writes it; empty for an id that does not exist.
  std::string_view id_to_token(int id) const;
  // The bytes the token adds to a text, maybe part of a character; empty for an id that does not exist.
  std::string_view id_to_bytes(int id) const;
  // The bytes of a token that starts a text, where some tokenizers drop a space.
  std::string first_bytes(int id) const;
  bool is_special(int id) const;

  const TokenDecoder& decoder() const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace strata
