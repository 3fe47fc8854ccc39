// The parts a tokenizer is put together from, as its loaders hand them over.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace strata {

struct TokenizerComponents {
  std::shared_ptr<const Vocabulary> vocabulary;  // what the model makes; added tokens may be outside it
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const WordModel> model;
  TokenDecoder decoder;
  std::vector<int> prefix, suffix;  // put around a text that is encoded with add_special
};

// U+2581, which SentencePiece vocabularies write for a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Lets words end before each run of space marks, where no token of the vocabulary spans that place: this
// makes words short and cacheable without changing what merges can do.
void shorten_words(const Vocabulary& vocabulary, PreTokenizer& pre_tokenizer);

}  // namespace strata
