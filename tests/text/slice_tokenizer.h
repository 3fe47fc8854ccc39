// A tokenizer of given byte strings, to cut texts in any way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace strata {

// Token i stands for slices[i]; after them come a special token "<|end|>" and the added token "<tool>".
inline Tokenizer slice_tokenizer(const std::vector<std::string>& slices) {
  TokenizerParts parts;
  parts.split_name = "gpt-2";
  for (const std::string& slice : slices) {
    parts.tokens.emplace_back();
    append_byte_level(parts.tokens.back(), slice);
    parts.types.push_back(TokenizerParts::Type::kNormal);
  }
  parts.tokens.insert(parts.tokens.end(), {"<|end|>", "<tool>"});
  parts.types.insert(parts.types.end(), {TokenizerParts::Type::kControl, TokenizerParts::Type::kUserDefined});
  return Tokenizer::from_parts(parts, "slices");
}

// All ways to cut `text` into pieces: bit i of `way` cuts behind byte i.
inline std::vector<std::string> cut(std::string_view text, unsigned way) {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    pieces.back().push_back(text[i]);
    if (i + 1 < text.size() && (way >> i & 1) != 0) pieces.emplace_back();
  }
  return pieces;
}

// Every part of a text, so that one tokenizer serves all its cuttings.
inline std::vector<std::string> all_slices(std::string_view text) {
  std::vector<std::string> slices;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t end = begin + 1; end <= text.size(); ++end)
      slices.emplace_back(text.substr(begin, end - begin));
  }
  return slices;
}

inline int slice_id(const Tokenizer& tokenizer, std::string_view slice) {
  std::string token;
  append_byte_level(token, slice);
  return tokenizer.token_to_id(token).value();
}

}  // namespace strata
