// The vocabulary and chat template a GGUF file carries.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "loader/gguf_metadata.h"

namespace strata {

// As tokenizer.ggml.* say; owned, so the file may go.
struct GgufVocabulary {
  std::string model;  // "gpt2" byte-level BPE, "llama" SentencePiece BPE, "t5" Unigram
  std::string pre;    // how gpt2 cuts words: "llama-bpe", "qwen2"; "default" where the file says nothing
  std::vector<std::string> tokens;
  std::vector<int> types;  // by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; or empty
  std::vector<float> scores;        // by id, or empty
  std::vector<std::string> merges;  // "left right" by rank, or empty
  std::optional<int> bos, eos;
  std::optional<bool> add_bos, add_eos;  // absent: the model's kind decides
  bool add_space_prefix = true;
  bool has_charsmap = false;  // a compiled map that SentencePiece rewrites texts by before it cuts them
  std::vector<int> end_tokens;  // any of which ends an answer
  std::optional<std::string> chat_template;
};

GgufVocabulary gguf_vocabulary(const GgufMetadata& metadata);
// Of a file (any part of a split one: the first has it). Throws Error.
GgufVocabulary load_gguf_vocabulary(const std::filesystem::path& file);

}  // namespace strata
