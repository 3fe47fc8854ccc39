// GGUF files as a source of tensors in their published names and layouts: one file, or the parts of a split one.
#pragma once

#include <filesystem>
#include <memory>

#include "loader/gguf_reader.h"
#include "loader/mapped_file.h"

namespace strata {

class Gguf final : public TensorSource {
 public:
  // `file` may be any part of a split file (name-00001-of-0000N.gguf); all of them are opened, and must agree.
  static std::unique_ptr<Gguf> open_file(const std::filesystem::path& file);

  explicit Gguf(const std::vector<std::filesystem::path>& parts);
  const std::vector<SourceTensor>& tensors() const override { return content_.tensors; }
  std::optional<ModelConfig> config() const override { return config_; }
  const GgufMetadata& metadata() const { return content_.metadata; }

 private:
  std::vector<MappedFile> files_;
  GgufContent content_;  // metadata of the first part, tensors of all
  std::optional<ModelConfig> config_;
};

// Gives every tensor its published name and form, and what the file says of the model in the published form. Names that are
// not of the architecture stay as they are, so that loading refuses them.
ModelConfig publish_gguf(GgufContent& content);

// The parts of the file that `file` belongs to, in order: itself alone when its name is not that of a part.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& file);

// The .gguf file of a folder (the first part, if split), when it holds those of one model; nothing when it holds none. Error
// when it holds several.
std::optional<std::filesystem::path> gguf_in(const std::filesystem::path& folder);

}  // namespace strata
