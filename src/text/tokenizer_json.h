// Reads tokenizer.json (format of the Hugging Face tokenizers library) into tokenizer parts.
//
// Strict: a kind of step, a field or a value that is not understood is an Error naming its place.
// `truncation` and `padding` are read over: a caller decides about those.
#pragma once

#include <string_view>

#include "text/json_node.h"
#include "text/tokenizer_components.h"

namespace strata {

TokenizerComponents read_tokenizer_json(std::string_view json, std::string_view source);

// Its sections, each in a file of its own.
void read_normalizer(const JsonNode& node, Normalizer& out);
void read_pre_tokenizer(const JsonNode& node, PreTokenizer& out);
TokenDecoder read_decoder(const JsonNode& node);
// Sets vocabulary and model; may add to the pre-tokenizer what makes words shorter without changing tokens.
void read_model(const JsonNode& node, TokenizerComponents& out);

// A pattern of a split or a replacement: {"String": ...} or {"Regex": ...}, as a regular expression.
SplitRegex read_pattern(const JsonNode& node);

}  // namespace strata
