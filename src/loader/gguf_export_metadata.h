// The key-value part of a GGUF file made from a model in its published form.
#pragma once

#include <filesystem>
#include <vector>

#include "loader/config.h"
#include "loader/gguf_names.h"
#include "loader/gguf_writer.h"

namespace strata {

// The architecture GGUF knows a model by; Error when it has none here.
const GgufArchName& gguf_arch_of(const ModelConfig& config);

// The part of set_gguf_config() that is the architecture's own (gguf_export_families.cpp); it may replace what is there
// already. Error for what the configuration says and GGUF has no key for.
void set_gguf_family(GgufWriter& to, const ModelConfig& config, const GgufModel& model);
bool nemotron_has_experts(const Json& config);

// Everything config_of_gguf() reads.
void set_gguf_config(GgufWriter& to, const ModelConfig& config, const GgufModel& model);

// tokenizer.ggml.* from `folder`/tokenizer.json (a byte-level BPE; Error otherwise) padded to `vocab` tokens, special tokens
// and the chat template. Without a tokenizer.json the file gets no vocabulary, and false is returned.
bool set_gguf_vocabulary(GgufWriter& to, const std::filesystem::path& folder, const ModelConfig& config, std::int64_t vocab);

// What a frequency of each rotated channel pair is divided by (rope_type llama3; proportional, where some stand still), or
// nothing for plain rotations. `head_dim` of the layers that see everything.
std::vector<float> gguf_rope_factors(const ModelConfig& config, std::int64_t head_dim);
std::int64_t gguf_global_head_dim(const ModelConfig& config, const GgufModel& model);

}  // namespace strata
