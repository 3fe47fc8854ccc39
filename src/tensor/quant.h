// The GGUF block types: what their bits mean, in one common form, and how to make them. The definition that every backend,
// the loader and the quantiser share. Layouts: ggml's public format (ggml-common.h); MXFP4: OCP Microscaling v1.0; NVFP4: eight
// bytes of E2M1 codes, element 2i in the low half of byte i, then their E4M3 scale (the halves as NVIDIA's Model Optimizer and
// compressed-tensors publish them; a matrix's f32 factor lies apart).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace strata {

// True for the types whose blocks hold more than one element.
inline bool is_block_type(DType dtype) { return info(dtype).block_elements > 1; }

inline constexpr int kMaxBlock = 256;

// A block in common form: element i is scale[i / group] * code[i] + offset[i / group], in f32, product and sum rounded one by
// one. Codes are integers of at most 8 bits; offset is 0 for the types that have no minimum.
struct BlockCodes {
  std::array<std::int8_t, kMaxBlock> code;
  std::array<float, 16> scale, offset;
};

// Elements that share a scale: 32, or 16 in Q2_K, Q3_K, Q6_K and NVFP4.
int quant_group(DType dtype);
// Whether offsets may be other than 0: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K.
bool quant_has_offset(DType dtype);

// One block (info(dtype).block_bytes bytes, any alignment).
void unpack_block(DType dtype, const std::byte* block, BlockCodes& codes);

// `count` elements, whole blocks.
void dequantize_row(DType dtype, const std::byte* blocks, std::int64_t count, float* to);
// The nearest blocks this engine knows to find (scales by search over the squared error). `x` must be finite.
void quantize_row(DType dtype, const float* x, std::int64_t count, std::byte* blocks);

// The 16 values of IQ4_NL and IQ4_XS, and of E2M1 (MXFP4, NVFP4) doubled, so that they are whole: scales are halved.
extern const std::array<std::int8_t, 16> kIq4Values;
extern const std::array<std::int8_t, 16> kMxfp4Values;

}  // namespace strata
