// Which rows of a checkpoint make up each tensor of a GGUF file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/gguf_names.h"

namespace strata {

// Rows first, first + step, ... of a published tensor, seen as a matrix of all its leading extents.
struct GgufPiece {
  enum class View {
    kRows,    // as it stands
    kTurned,  // rows [block, block + height) turned round: its columns are the rows here
    kFlat,    // its elements one by one
    kMxfp4,   // name_blocks and name_scales as rows of MXFP4 blocks (gpt-oss)
  };
  std::string name;  // normal name
  std::int64_t first = 0, count = 0;
  std::int64_t step = 1;
  View view = View::kRows;
  std::int64_t block = 0, height = 0;  // of kTurned
};

struct GgufPlanned {
  GgufTensorName name;
  Shape shape;                    // in the file, outermost first
  std::vector<GgufPiece> pieces;  // stacked: the published matrix
};

// Every tensor the checkpoint can fill: as it is, stacked from single experts, or cut from a fused matrix (experts' gate_up_proj;
// Qwen3-Next's in_proj_qkvz; kv_b_proj; Granite's input_linear; gpt-oss's alternating gate and up). Order is that of
// gguf_names(). What it does not name is left over.
std::vector<GgufPlanned> plan_gguf(const Checkpoint& checkpoint, const GgufModel& model, const Json& config);

// Reads rows of a checkpoint's tensors as f32, FP8 with its block scales; keeps what it took. Any number of threads may read
// once take() was called for the piece. Rows are numbered within the piece.
class PublishedRows {
 public:
  explicit PublishedRows(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  void take(const GgufPiece& piece);
  std::int64_t row_size(const GgufPiece& piece) const;
  void read(const GgufPiece& piece, std::int64_t row, float* to) const;
  // The type whole rows lie there in, for raw(); nothing where a row is gathered from elements.
  std::optional<DType> stored(const GgufPiece& piece) const;
  void raw(const GgufPiece& piece, std::int64_t row, std::byte* to) const;

 private:
  struct Taken {
    Tensor data, scales;
    std::int64_t columns = 1;  // of the matrix it is seen as
    std::int64_t group = 0;    // rows of one expert
    float element(std::int64_t row, std::int64_t column) const;
    float scale(std::int64_t row, std::int64_t column) const;
  };
  Checkpoint& checkpoint_;
  std::map<std::string, Taken> taken_;
};

}  // namespace strata
