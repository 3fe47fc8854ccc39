// Dummy checkpoints: random tensors in the shapes of a configuration, to measure speed without a checkpoint.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loader/config.h"
#include "loader/tensor_source.h"

namespace strata {

// Configurations of published models by name ("qwen3.5-35b-a3b"); what speed depends on, no more.
std::vector<std::string> published_shapes();
ModelConfig published_shape(std::string_view name);  // Error listing those that are known

// The tensors that a checkpoint of this configuration has under the names it has them, filled with random
// numbers of a size that keeps activations finite. `matrices` is bf16, f8_e4m3 (layers' matrices in blocks
// of 128 x 128 with scales, as published FP8 checkpoints; embedding, head, routers and gates stay bf16) or the same
// matrices as q4_0, q4_1, mxfp4 or nvfp4.
// Takes no memory to speak of: every tensor views the same few megabytes, mapped again and again. For llama,
// qwen2, qwen3(_moe), qwen3_next and qwen3_5(_moe); Error for others.
std::unique_ptr<const TensorSource> dummy_source(const ModelConfig& config, DType matrices);

}  // namespace strata
