// Reads the vocabularies of the tokenizers' goldens that are kept as pieces.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer_parts.h"

namespace strata {

inline TokenizerParts read_parts(const nlohmann::json& data) {
  TokenizerParts parts;
  parts.kind = data["kind"] == "bpe"       ? TokenizerParts::Kind::kSentencePieceBpe
               : data["kind"] == "unigram" ? TokenizerParts::Kind::kUnigram
                                           : TokenizerParts::Kind::kGpt2Bpe;
  parts.tokens = data["tokens"].get<std::vector<std::string>>();
  for (const int type : data["types"]) parts.types.push_back(static_cast<TokenizerParts::Type>(type));
  parts.scores = data.value("scores", std::vector<float>{});
  parts.merges = data.value("merges", std::vector<std::string>{});
  parts.split_name = data.value("pre", "");
  parts.add_space_prefix = data.value("add_space_prefix", true);
  return parts;
}

}  // namespace strata
