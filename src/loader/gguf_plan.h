// Which rows of a checkpoint make up each tensor of a GGUF file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/gguf_names.h"

namespace strata {

// Rows [first, first + count) of a published tensor, seen as a matrix of all its leading extents.
struct GgufPiece {
  std::string name;  // normal name
  std::int64_t first = 0, count = 0;
};

struct GgufPlanned {
  GgufTensorName name;
  Shape shape;                    // in the file, outermost first
  std::vector<GgufPiece> pieces;  // stacked: the published matrix
};

// Every tensor the checkpoint can fill: as it is, stacked from single experts, or cut from a fused matrix (gate_up_proj;
// Qwen3-Next's in_proj_qkvz). Order is that of gguf_names(). What it does not name is left over.
std::vector<GgufPlanned> plan_gguf(const Checkpoint& checkpoint, const GgufModel& model, const Json& config);

// Reads rows of a checkpoint's tensors as f32, FP8 with its block scales; keeps what it took. Any number of threads may read
// once take() was called for the tensor.
class PublishedRows {
 public:
  explicit PublishedRows(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  void take(const std::string& name);
  DType dtype(const std::string& name) const { return taken_.at(name).data.dtype(); }
  std::int64_t row_size(const std::string& name) const { return taken_.at(name).columns; }
  const std::byte* raw(const std::string& name, std::int64_t row) const;
  void read(const std::string& name, std::int64_t row, float* to) const;

 private:
  struct Taken {
    Tensor data, scales;
    std::int64_t columns = 1;  // of the matrix it is seen as
    std::int64_t group = 0;    // rows of one expert
  };
  Checkpoint& checkpoint_;
  std::map<std::string, Taken> taken_;
};

}  // namespace strata
