// A golden model's tensors, to be changed and written as another checkpoint.
#pragma once

#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "loader/safetensors_writer.h"
#include "loader/temp_folder.h"
#include "model_fixture.h"

namespace strata::test {

// Tensors of a golden model, to be changed and written elsewhere; made ones live here.
class Copy {
 public:
  explicit Copy(const std::string& golden)
      : folder_(golden_folder() / golden), file_(Safetensors::open_file(folder_ / "model.safetensors")) {
    for (const SourceTensor& t : file_->tensors()) {
      Shape shape;
      for (const std::int64_t n : t.extents) shape.append(n);
      tensors_[t.name] = Tensor(const_cast<std::byte*>(t.bytes.data()), t.dtype, shape);
    }
  }
  Tensor take(const std::string& name) {
    const Tensor t = tensors_.at(name);
    tensors_.erase(name);
    return t;
  }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  Tensor make(const std::string& name, DType dtype, const Shape& shape) {
    return tensors_[name] =
               buffers_.emplace_back(Buffer::host(bytes_of(dtype, shape.elements()))).view(dtype, shape);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  // As a model folder; `extra` is laid over its configuration.
  std::filesystem::path write(const TempFolder& to, const std::string& name, const nlohmann::json& extra = {}) const {
    const std::filesystem::path out = to / name;
    std::filesystem::create_directories(out);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(folder_ / "config.json"));
    if (extra.is_object()) config.update(extra);
    std::ofstream(out / "config.json") << config;
    std::vector<NamedTensor> all;
    for (const auto& [tensor_name, tensor] : tensors_) all.push_back({tensor_name, tensor});
    write_safetensors(out / "model.safetensors", all);
    return out;
  }
  Rows logits(const TempFolder& to, const std::string& name, const nlohmann::json& extra = {}) const {
    LoadedModel loaded(write(to, name, extra), {.threads = 1});
    const Pools pools(loaded.model, 2, 1, 0);
    const Piece piece{.tokens = Reference(folder_ / "reference.safetensors").ints("ids.t65"),
                      .pages = iota(0, 2)};
    return loaded.run(pools, std::span(&piece, 1)).logits;
  }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<Safetensors> file_;
  std::map<std::string, Tensor> tensors_;
  std::deque<Buffer> buffers_;
};

}  // namespace strata::test
