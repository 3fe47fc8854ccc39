// NVFP4 checkpoints in safetensors as they are published, brought into one form.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "loader/json.h"
#include "loader/tensor_source.h"

namespace strata {

// NVIDIA's Model Optimizer: x.weight u8 [N, K / 2], x.weight_scale f8_e4m3 [N, K / 16], x.weight_scale_2 f32,
// a factor. compressed-tensors, "nvfp4-pack-quantized": x.weight_packed, x.weight_scale,
// x.weight_global_scale f32, a divisor.
enum class Nvfp4Form : std::uint8_t { kModelOpt, kCompressedTensors };

// What the quantization_config of `config` says; nothing where that is absent or another method. Error, by
// the key's name, for settings of the two methods that are not NVFP4 in groups of 16.
std::optional<Nvfp4Form> nvfp4_form(const Json& config);

// The source's tensors with x.weight [N, K] of DType::kNVFP4 and x.weight_scale_2 [1] f32, the factor, in
// place of the three of each quantised matrix. Scales of activations and of keys and values (input_scale,
// input_global_scale, k_scale, v_scale) are left out, as activations are not rounded to 4 bits here; the log
// says so. Error where a part is missing, or of a type or shape that does not fit.
std::unique_ptr<const TensorSource> with_nvfp4(std::unique_ptr<const TensorSource> source, Nvfp4Form form);

}  // namespace strata
