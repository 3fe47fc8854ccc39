// A GGUF file's vocabulary as the tokenizer's parts: the loader and the tokenizer do not know each other.
#pragma once

#include "loader/gguf_vocabulary.h"
#include "text/tokenizer_parts.h"

namespace strata {

// Error for a kind of vocabulary the tokenizer does not know. `source` names the file.
TokenizerParts tokenizer_parts(const GgufVocabulary& vocabulary, const std::string& source);

}  // namespace strata
