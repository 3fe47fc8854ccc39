// TensorSource: what every checkpoint format gives, named tensors as views of mapped files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/config.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata {

// One tensor as its file describes it. The source has checked that `bytes` holds exactly extents x dtype, or what `convert`
// makes that from.
struct SourceTensor {
  std::string name;  // as in the file
  std::string file;  // for errors
  DType dtype = DType::kF32;
  std::vector<std::int64_t> extents;  // outermost first; vision tensors may have more than Shape::kMaxRank
  std::span<const std::byte> bytes;   // valid while the source lives; not aligned in odd files
  // Fills extents x dtype from `bytes`, where a format keeps the tensor in another form; empty: they are the same.
  std::function<void(const SourceTensor& self, std::byte* to)> convert;
};

// "[3, 64]", for any number of extents.
std::string to_string(std::span<const std::int64_t> extents);

// Owns its mapped files. Fixed once made, so any thread may read it.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const std::vector<SourceTensor>& tensors() const = 0;
  // The configuration when the format carries one itself; else config.json beside the files is read.
  virtual std::optional<ModelConfig> config() const { return std::nullopt; }
};

}  // namespace strata
