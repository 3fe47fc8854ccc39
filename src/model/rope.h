// Rope tables from a configuration: base, scaling and the channels that turn.
#pragma once

#include <memory>
#include <string_view>

#include "loader/json.h"
#include "ops/ops.h"

namespace strata {

// The rotary table of heads of `head_dim` channels, from `rope_parameters` (as transformers 5 writes it) or
// `rope_theta` with `rope_scaling`. `layer_type` picks the entry when rope_parameters is a dictionary of
// layer types. Kinds: default, linear, llama3 (Llama 3.1), yarn (Peng et al. 2023), proportional (gemma4),
// factors (GGUF's list of divisors); others, dynamic ones too, are an Error. The table belongs to `ops`.
std::shared_ptr<Rope> load_rope(const Json& config, int head_dim, Ops& ops, std::string_view layer_type = "");

// The object that says how to rotate: the parameters above in their newer form. Families read their own keys
// from it.
Json rope_parameters(const Json& config, std::string_view layer_type = "");

}  // namespace strata
