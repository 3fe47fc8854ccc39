// Writes a model as a GGUF file: what `strata quantize` does.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "loader/gguf_names.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata {

struct GgufExportOptions {
  DType type = DType::kQ8_0;       // of the large matrices
  std::optional<DType> embedding;  // of the embedding table and the head; absent: `type`, but at least 6 bits
  int threads = 2;
  std::function<void(std::size_t done, std::size_t total)> progress;  // bytes written; may be empty
};

struct GgufExportSummary {
  std::size_t tensors = 0;
  std::size_t bytes_before = 0, bytes_after = 0;  // of tensors
  std::size_t coarser = 0;                        // matrices whose rows are not whole blocks of the type, kept in another
  bool vocabulary = true;                         // false: there was none to take along
};

// `in` is what Checkpoint::open takes, of an architecture GGUF has a name for here. Throws Error, also when a tensor is left
// over. The vocabulary comes along: of a GGUF file as it is; of a folder from tokenizer.json, where that is a byte-level BPE.
GgufExportSummary export_gguf(const std::filesystem::path& in, const std::filesystem::path& out, const GgufExportOptions& options);

// The type a tensor is written in. Matrices take `options.type` where their rows are whole blocks, else the next finer type
// whose blocks fit (and `coarser` reports it); norms, routers, convolutions and other small things stay f32.
DType export_type(const GgufTensorName& name, const Shape& file_shape, const GgufExportOptions& options);

}  // namespace strata
