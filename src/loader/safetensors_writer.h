// Writes safetensors files: for tests, the quantiser and saved caches.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace strata {

// Declare every tensor, then write their data in that order, then close(). The file appears under its name
// only when it is whole. One thread owns it; throws Error when the disk does not take it. Out of order calls
// are broken invariants.
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(std::filesystem::path path, std::map<std::string, std::string> metadata = {});
  ~SafetensorsWriter();  // an unfinished file is removed
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  void declare(const std::string& name, DType dtype, const Shape& shape);  // plain types only
  void write(const Tensor& tensor);  // host tensor of the next declared dtype and shape; rows may be strided
  void close();

 private:
  struct Declared {
    std::string name;
    DType dtype;
    Shape shape;
  };
  void write_header();

  std::filesystem::path path_, part_;
  std::map<std::string, std::string> metadata_;
  std::vector<Declared> declared_;
  std::size_t written_ = 0;
  std::ofstream out_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace strata
