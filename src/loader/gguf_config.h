// The configuration of a model, from what a GGUF file says of it.
#pragma once

#include "loader/config.h"
#include "loader/gguf_reader.h"

namespace strata {

// In the published form (config.json's keys), with the end tokens and sampling defaults. Error naming the file and the key
// for an architecture or a variant of one that this engine does not know. Reads rope_freqs.weight, if there, into the
// configuration (rope_type "factors").
ModelConfig config_of_gguf(const GgufContent& file);

// Ids that end an answer: the file's end-of-text, -turn and -message tokens, and control tokens whose spelling says so.
std::vector<int> gguf_end_tokens(const GgufMetadata& metadata);

class GgufKeys;

inline constexpr const char* kGgufRopeFactors = "rope_freqs.weight";  // [channels / 2]: each frequency is divided by its factor
// That tensor's numbers, all above 0; none when the file has none.
std::vector<float> gguf_rope_factors_of(const GgufKeys& keys);

}  // namespace strata
