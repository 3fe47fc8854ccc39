// The bytes of a GGUF file: header, metadata, where its tensors lie.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/gguf_metadata.h"
#include "loader/tensor_source.h"

namespace strata {

struct GgufContent {
  GgufMetadata metadata;
  std::vector<SourceTensor> tensors;  // names and extents as in the file, extents outermost first
};

// Reads versions 2 and 3, little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). `file` is the whole
// file and must stay mapped. Strict: tensors follow one another without overlap or gaps beyond the alignment, and end where
// the file ends. Throws Error naming `origin` and the key or tensor.
GgufContent parse_gguf(std::span<const std::byte> file, const std::string& origin);

// The numbers of element types in the file; nothing for those this engine does not know.
std::optional<DType> dtype_of_gguf(std::uint32_t type);
std::optional<std::uint32_t> gguf_type_of(DType dtype);

inline constexpr std::size_t kGgufAlignment = 32;  // where general.alignment says nothing

}  // namespace strata
