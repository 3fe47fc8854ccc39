// The families' registry rows, by the file that builds them.
#pragma once

#include <vector>

#include "model/registry.h"

namespace strata {

std::vector<Family> decoder_families();
std::vector<Family> gemma3_families();
std::vector<Family> gemma4_families();
std::vector<Family> gpt_oss_families();
std::vector<Family> mamba_hybrid_families();
std::vector<Family> mla_families();
std::vector<Family> minimax_families();
std::vector<Family> qwen4_families();
std::vector<Family> qwen_hybrid_families();

}  // namespace strata
