// The regular expressions by which published tokenizers cut text into words, under their names.
#pragma once

#include <string_view>
#include <vector>

namespace strata {

// The pattern of the ByteLevel pre-tokenizer (GPT-2).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Digits, Punctuation and Whitespace of tokenizer.json.
inline constexpr std::string_view kDigitPattern = R"(\p{N})";
inline constexpr std::string_view kPunctuationPattern = R"([\p{P}$+<=>\^`|~])";
// Words with the joiners U+200C and U+200D, and runs of what is neither word nor white space.
inline constexpr std::string_view kWordPattern =
    R"([\w\u200C\u200D]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200C\u200D\s]+)";

struct NamedSplits {
  std::vector<std::string_view> patterns;  // applied one after another, matches isolated
  bool ignore_merges = false;              // a word that is a token needs no merges
};

// The patterns that a GGUF file names in tokenizer.ggml.pre ("llama-bpe", "qwen2", ...), or nullptr.
const NamedSplits* find_named_splits(std::string_view name);

}  // namespace strata
