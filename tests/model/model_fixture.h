// For tests of whole models: a model on the CPU with pools for all its layers, and batches of any cut.
#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loader/safetensors.h"
#include "model/registry.h"
#include "ops/cpu/cpu_ops.h"

namespace strata::test {

using Ints = std::vector<std::int32_t>;
using Rows = std::vector<std::vector<float>>;  // one vector for each row

// Tensors of a reference file.
class Reference {
 public:
  explicit Reference(const std::filesystem::path& file) : file_(Safetensors::open_file(file)) {}

  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return find(name) != nullptr; }
  Ints ints(const std::string& name) const;
  Rows rows(const std::string& name) const;  // f32 [T, n]
  std::vector<float> floats(const std::string& name) const;

 private:
  const SourceTensor* find(const std::string& name) const;
  const SourceTensor& at(const std::string& name) const;

  std::unique_ptr<Safetensors> file_;
};

// Memory of every layer of one model, each float NaN until something is written.
class Pools {
 public:
  Pools(const Model& model, int pages, int slots, int tapes);
  std::span<const Memory> memory() const { return memory_; }
  std::vector<std::byte> slot_bytes(int slot) const;  // of all layers: what recurrent layers keep in a slot

 private:
  Tensor make(const Shape& shape);

  std::vector<Buffer> buffers_;
  std::vector<Memory> memory_;
};

// What one sequence does in a step. Rows are numbered within the piece.
struct Piece {
  Ints tokens;
  int start = 0;  // index of the first row in its sequence
  Ints pages;     // of the sequence; empty = a padding piece, kv_slots -1
  int state_in = -1;
  std::vector<std::pair<int, int>> saves;  // (row, slot)
  int tape = -1, replay = 0, state_out = -1;
  int adapter = -1;
};

// Owns the numbers of a step; every row is a logit row.
class PackedBatch {
 public:
  // `lora`: what the pieces' adapters are; null = all must be -1.
  explicit PackedBatch(std::span<const Piece> pieces, const LoraTables* lora = nullptr);
  PackedBatch(const PackedBatch&) = delete;
  PackedBatch& operator=(const PackedBatch&) = delete;
  const Batch& batch() const { return batch_; }

 private:
  Tensor keep(Ints values, const Shape& shape);

  std::vector<std::unique_ptr<Ints>> numbers_;
  Batch batch_;
};

struct StepRows {
  Rows logits, hidden;                 // hidden: after the final norm
  std::map<std::size_t, Rows> stream;  // entering layer i, of the layers that were asked for
};

// The backend, with tables that are computed (not read) rounded to bf16. The golden models' outputs were made
// so: the rotary tables went through bf16 together with the weights.
class RoundedTablesOps final : public CpuOps {
 public:
  using CpuOps::CpuOps;
  Tensor load_vector(const Tensor& host, float add) override;
};

// A model with its backend; loads a folder.
struct LoadedModel {
  // Golden models compute with rounded tables, as their outputs were made.
  explicit LoadedModel(const std::filesystem::path& folder, const CpuOptions& options = {},
                       const LoadOptions& load_options = {});
  LoadedModel(const std::filesystem::path& folder, std::unique_ptr<CpuOps> on,
              const LoadOptions& load_options = {});

  // Runs the pieces through `which` (the model or its MTP head). `hidden`: a row for each row, for an MTP
  // head.
  StepRows run(const Model& which, const Pools& pools, std::span<const Piece> pieces, const Rows& hidden = {},
               const std::vector<std::size_t>& watch = {});
  StepRows run(const Pools& pools, std::span<const Piece> pieces) { return run(model, pools, pieces); }

  const LoraTables* lora = nullptr;
  std::unique_ptr<CpuOps> backend;
  CpuOps& ops;
  Model model;
};

std::filesystem::path golden_folder();
std::filesystem::path tiny_hybrid_folder();
// Golden models whose family this build knows.
std::vector<std::string> golden_names();

Ints iota(int begin, int count);

}  // namespace strata::test
