// The safetensors format (https://github.com/huggingface/safetensors#format), single file or sharded by an
// index.
#pragma once

#include <filesystem>
#include <memory>

#include "loader/mapped_file.h"
#include "loader/tensor_source.h"

namespace strata {

// Reads the header of a safetensors file whose whole content is `file`: 8 bytes of length, that much JSON,
// data. Gives the tensors in the order of their data. Strict: every byte of data belongs to exactly one
// tensor. Throws Error naming `origin` and the tensor.
std::vector<SourceTensor> parse_safetensors(std::span<const std::byte> file, const std::string& origin);

constexpr std::size_t kMaxSafetensorsHeader = 100'000'000;  // the format's own limit, in bytes

// Files named by an index, or one file.
class Safetensors final : public TensorSource {
 public:
  static std::unique_ptr<Safetensors> open_file(const std::filesystem::path& file);
  // A `*.safetensors.index.json`: {"weight_map": {tensor: shard}}. Index and shards must agree on every
  // tensor.
  static std::unique_ptr<Safetensors> open_index(const std::filesystem::path& index);

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }

 private:
  void add_file(const std::filesystem::path& file);

  std::vector<MappedFile> files_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace strata
