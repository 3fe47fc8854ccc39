// Byte-pair encoding: a word's characters are joined pair by pair, by learnt merges or by token scores.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "text/merges.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace strata {

struct BpeOptions {
  int unk_id = -1;             // for characters that are no token; -1: they are dropped
  bool fuse_unk = false;       // one unk for a run of them
  bool byte_fallback = false;  // <0x00> ... <0xFF> instead of unk
  bool ignore_merges = false;  // a word that is a token needs no merges
  bool reads_bytes = false;    // words are raw bytes, token text is in the byte-level alphabet
};

// BPE with merges in order of rank, as in tokenizer.json and GPT-2 style GGUF files.
class Bpe : public WordModel {
 public:
  Bpe(std::shared_ptr<const Vocabulary> vocabulary, MergeTable merges, BpeOptions options);
  void encode(std::string_view word, std::vector<int>& out) const override;

 private:
  bool start_with_bytes(std::string_view word, std::vector<Symbol>& symbols) const;
  void start_with_chars(std::string_view word, std::vector<Symbol>& symbols) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int, 256> char_tokens_;  // reads_bytes: token of each byte's character, -1 if none
  std::array<int, 256> byte_tokens_;  // byte_fallback: <0xXX>, -1 if none
};

// BPE by score, as SentencePiece does it (Kudo and Richardson 2018, arXiv:1808.06226): two neighbours join if
// their text is a token, the highest score first. Characters that are no token become byte tokens, else unk.
class ScoreBpe : public WordModel {
 public:
  // scores[id] of each token; joins[id]: whether joins may make it (control tokens and bytes are not text).
  ScoreBpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<float>& scores,
           const std::vector<bool>& joins, int unk_id);
  void encode(std::string_view word, std::vector<int>& out) const override;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<uint32_t> ranks_;  // of each token, 0 = highest score; Merge::kNone = never made
  std::array<int, 256> byte_tokens_;
  int unk_id_;
};

// The tokens <0x00> to <0xFF>, -1 where there is none.
std::array<int, 256> find_byte_tokens(const Vocabulary& vocabulary);

}  // namespace strata
