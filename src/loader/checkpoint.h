// Checkpoint: fetch and verify each tensor of a model, once each.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/config.h"
#include "loader/tensor_source.h"
#include "tensor/tensor.h"

namespace strata {

// The name a model family asks for, whatever the checkpoint wraps around the text model: "model.layers.0.x",
// "model.language_model.layers.0.x" and "language_model.model.layers.0.x" are "layers.0.x". lm_head.*, mtp.*
// and every other name stay.
std::string normal_name(std::string_view name);

// For inspection: what one tensor is, under its normal name.
struct TensorSummary {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> extents;
  std::size_t bytes;
};

// One thread owns it. Tensors taken are read-only views that live as long as storage() does. Loading ends
// with finish(): a tensor nobody asked for is an error. Vision and audio tensors, and rotary tables that can
// be computed, are set aside at open; the log says so. Every Error names the file and the tensor.
class Checkpoint {
 public:
  // Called as the bytes of tensors are read in: after every few megabytes, and once when all is done.
  using Progress = std::function<void(std::size_t done, std::size_t total)>;

  // A folder, a .safetensors or .gguf file or a .safetensors.index.json. With `progress`, take() reads the tensor from
  // the disk before it returns; without, pages come in when they are first used. NVFP4 comes as nvfp4.h says.
  static Checkpoint open(const std::filesystem::path& path, Progress progress = {});
  // From any source; `path` is what errors name.
  Checkpoint(std::unique_ptr<const TensorSource> source, std::optional<ModelConfig> config,
             std::filesystem::path path, Progress progress = {});

  // Names are normal names. Consumed tensors still count as present.
  bool has(std::string_view name) const { return tensors_.contains(name); }
  std::optional<Shape> shape_of(std::string_view name) const;
  std::optional<DType> dtype_of(std::string_view name) const;
  std::vector<TensorSummary> list() const;  // sorted by name; without those set aside at open
  std::size_t total_bytes() const { return total_bytes_; }

  // A host view [expected] of the tensor, whatever its dtype. Taking twice is an Error.
  Tensor take(std::string_view name, const Shape& expected);
  std::optional<Tensor> take_if(std::string_view name, const Shape& expected);
  // What take() gave, for a further copy of the tensor; Error if nobody took it.
  Tensor again(std::string_view name, const Shape& expected);
  // Consumes what is left under a prefix on purpose; says so in the log.
  void skip(std::string_view prefix);
  // Error when tensors are left over: lists the first 10 and their number.
  void finish() const;

  bool has_config() const { return config_.has_value(); }
  const ModelConfig& config() const;  // Error when there is no config.json
  const std::filesystem::path& path() const { return path_; }

  // Keeps the memory of taken tensors: hold it as long as they are used.
  std::shared_ptr<const void> storage() const { return storage_; }

 private:
  struct Entry {
    const SourceTensor* tensor;
    bool consumed = false;
  };
  struct Storage {
    std::unique_ptr<const TensorSource> source;
    std::vector<Buffer> copies;  // of tensors that lie unaligned in their file, or in another form
  };

  Entry& entry(std::string_view name, const Shape& expected, bool taken);
  Tensor view(const SourceTensor& tensor, const Shape& shape);
  void set_aside();
  void count(std::size_t bytes);

  std::filesystem::path path_;
  std::shared_ptr<Storage> storage_;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::optional<ModelConfig> config_;
  Progress progress_;
  std::size_t total_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace strata
