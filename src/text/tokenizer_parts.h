// The tokens of a vocabulary in memory, from which a loader of another file format has a tokenizer built.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

struct TokenizerParts {
  enum class Kind {
    kGpt2Bpe,              // byte-level BPE with merges
    kSentencePieceBpe,     // BPE by score, spaces as U+2581, byte fallback
    kSentencePieceMerges,  // the same with merges instead of scores (Gemma 4)
    kUnigram,              // Unigram by score, spaces as U+2581, byte fallback where there are byte tokens
  };
  // Numbered as GGUF's tokenizer.ggml.token_type.
  enum class Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

  Kind kind = Kind::kGpt2Bpe;
  std::vector<std::string> tokens;  // by id
  std::vector<Type> types;          // by id; empty: all normal
  std::vector<float> scores;        // by id, for kSentencePieceBpe and kUnigram
  std::vector<std::string> merges;  // "left right" in order of rank, for kGpt2Bpe and kSentencePieceMerges
  std::string split_name;           // how kGpt2Bpe cuts words: a name known to find_named_splits
  bool add_space_prefix = true;     // SentencePiece kinds: a space before the text
  bool ignore_merges = false;       // besides what split_name says
  bool nfc = false;                 // normalise to NFC first (Qwen models)
  std::vector<int> prefix, suffix;  // ids around a text: begin of text, end of text
};

}  // namespace strata
