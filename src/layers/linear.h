// Linear: a product with a loaded matrix, which may be several published matrices fused by rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace strata {

// Rows [begin, begin + count) of a published matrix.
struct RowRange {
  std::int64_t begin = 0, count = 0;
};

// A published matrix inside a fused one: which of its rows, in the order they lie here, consecutively. Of experts: each has its
// own matrix; but with a head_stride the experts are the heads of one, and `rows` those of head 0, head h's that much further.
struct LinearPart {
  std::string name;              // "layers.3.self_attn.q_proj"
  std::int64_t outputs = 0;      // rows of the published matrix
  std::vector<RowRange> rows;    // empty = all, in order
  bool bias = false;             // the published matrix has one
  std::int64_t head_stride = 0;
  bool transposed = false;       // of heads: the rows' columns are the outputs here, the rows the inputs
};

// Immutable after load. y [T, N] = x [T, K] w^T + bias.
class Linear {
 public:
  Linear() = default;
  Linear(Weight weight, Tensor bias, std::vector<LinearPart> parts)
      : Linear(std::make_shared<const Weight>(std::move(weight)), bias, std::move(parts)) {}
  // Over a matrix that something else uses too: a head tied to the embedding.
  Linear(std::shared_ptr<const Weight> weight, Tensor bias, std::vector<LinearPart> parts)
      : weight_(std::move(weight)), bias_(bias), parts_(std::move(parts)) {}

  bool empty() const { return weight_ == nullptr; }
  const Weight& weight() const { return *weight_; }
  Tensor bias() const { return bias_; }
  std::shared_ptr<const Weight> share() const { return weight_; }
  const std::vector<LinearPart>& parts() const { return parts_; }
  std::int64_t outputs() const { return weight_->outputs(); }
  std::int64_t inputs() const { return weight_->inputs(); }

  // Whether an adapter of the batch adds to it.
  bool adapted(const Batch& batch) const;
  // Into `out`, or into new scratch of the activation type or of `dtype`.
  void operator()(Tensor out, Tensor x, const Batch& batch, Ops& ops) const;
  Tensor operator()(Tensor x, const Batch& batch, Ops& ops) const;
  Tensor operator()(Tensor x, const Batch& batch, Ops& ops, DType dtype) const;
  // Of the norm's output.
  Tensor operator()(const AddNorm& x, const Batch& batch, Ops& ops) const;
  // The GLU of gate | up [T, N / 2], in new scratch.
  Tensor glu(Tensor x, Activation activation, float limit, const Batch& batch, Ops& ops) const;

 private:
  std::shared_ptr<const Weight> weight_;  // [N, K]
  Tensor bias_;     // [N] f32 or empty
  std::vector<LinearPart> parts_;
};

// The same for expert matrices [E, N, K]: entry row * k + j of the output is that of row's j-th expert.
class ExpertLinear {
 public:
  ExpertLinear() = default;
  ExpertLinear(Weight weight, Tensor bias, std::vector<LinearPart> parts, std::string stack = "")
      : weight_(std::move(weight)), bias_(bias), parts_(std::move(parts)), stack_(std::move(stack)) {}

  bool empty() const { return weight_.empty(); }
  const Weight& weight() const { return weight_; }
  Tensor bias() const { return bias_; }
  const std::vector<LinearPart>& parts() const { return parts_; }
  // All parts as one published stack [E, N, K], "layers.3.mlp.experts.gate_up_proj"; empty = there is no such name.
  const std::string& stack() const { return stack_; }
  std::int64_t outputs() const { return weight_.outputs(); }
  std::int64_t inputs() const { return weight_.inputs(); }
  bool adapted(const Batch& batch) const;
  // x [T, K] or [T*k, K] -> [T*k, N].
  Tensor operator()(Tensor x, const Routing& routing, const Batch& batch, Ops& ops) const;
  // The GLU of gate | up [T*k, N / 2].
  Tensor glu(Tensor x, const Routing& routing, Activation activation, float limit, const Batch& batch, Ops& ops) const;

 private:
  Weight weight_;   // [E, N, K]
  Tensor bias_;     // [E, N] f32 or empty
  std::vector<LinearPart> parts_;  // of one expert: "layers.3.mlp.experts.*.gate_proj"
  std::string stack_;
};

// The matrices of a layer or a model that adapters may add to.
struct Linears {
  std::vector<const Linear*> plain;
  std::vector<const ExpertLinear*> experts;

  // Those that are there; empty ones are left out.
  template <typename... Matrices>
  void add(const Matrices&... matrices) {
    (add_one(matrices), ...);
  }

 private:
  void add_one(const Linear& m) {
    if (!m.empty()) plain.push_back(&m);
  }
  void add_one(const ExpertLinear& m) {
    if (!m.empty()) experts.push_back(&m);
  }
};

}  // namespace strata
