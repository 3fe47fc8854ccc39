// Writes GGUF files (version 3): for the quantiser and for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "loader/gguf_metadata.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata {

// Set keys and declare tensors, then write their data in that order, then close(). The file appears under its name only
// when it is whole. One thread owns it; throws Error when the disk does not take it. Out of order calls are broken invariants.
class GgufWriter {
 public:
  explicit GgufWriter(std::filesystem::path path);
  ~GgufWriter();  // an unfinished file is removed
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  // Integers are written as 32 bits where they fit (lists always), floats as f32. A key set again is replaced.
  void set(const std::string& key, const GgufValue& value);
  void declare(const std::string& name, DType dtype, const Shape& shape);
  // The next bytes of the declared tensors, in order; a tensor may come in several calls. Padding is put between tensors.
  void write(std::span<const std::byte> bytes);
  void close();

 private:
  struct Declared {
    std::string name;
    DType dtype;
    Shape shape;
    std::size_t offset;
  };
  void write_header();
  void pad(std::size_t to);

  std::filesystem::path path_, part_;
  std::map<std::string, std::string> values_;  // key -> type and value as the file has them
  std::vector<Declared> declared_;
  std::size_t current_ = 0, written_ = 0;  // tensor being written; bytes of data so far
  bool begun_ = false;
  std::ofstream out_;
};

}  // namespace strata
