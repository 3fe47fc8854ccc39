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

// A published matrix inside a fused one: which of its rows, in the order they lie here, consecutively.
struct LinearPart {
  std::string name;              // "layers.3.self_attn.q_proj"
  std::int64_t outputs = 0;      // rows of the published matrix
  std::vector<RowRange> rows;    // empty = all, in order
  bool bias = false;             // the published matrix has one
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
  std::shared_ptr<const Weight> share() const { return weight_; }
  const std::vector<LinearPart>& parts() const { return parts_; }
  std::int64_t outputs() const { return weight_->outputs(); }
  std::int64_t inputs() const { return weight_->inputs(); }

  // Into `out`, or into new scratch of the activation type or of `dtype`.
  void operator()(Tensor out, Tensor x, const Batch& batch, Ops& ops) const;
  Tensor operator()(Tensor x, const Batch& batch, Ops& ops) const;
  Tensor operator()(Tensor x, const Batch& batch, Ops& ops, DType dtype) const;

 private:
  std::shared_ptr<const Weight> weight_;  // [N, K]
  Tensor bias_;     // [N] f32 or empty
  std::vector<LinearPart> parts_;
};

// The same for expert matrices [E, N, K]: entry row * k + j of the output is that of row's j-th expert.
class ExpertLinear {
 public:
  ExpertLinear() = default;
  ExpertLinear(Weight weight, Tensor bias, std::vector<LinearPart> parts)
      : weight_(std::move(weight)), bias_(bias), parts_(std::move(parts)) {}

  bool empty() const { return weight_.empty(); }
  const Weight& weight() const { return weight_; }
  const std::vector<LinearPart>& parts() const { return parts_; }
  std::int64_t outputs() const { return weight_.outputs(); }
  // x [T, K] or [T*k, K] -> [T*k, N].
  Tensor operator()(Tensor x, const Routing& routing, const Batch& batch, Ops& ops) const;

 private:
  Weight weight_;   // [E, N, K]
  Tensor bias_;     // [E, N] f32 or empty
  std::vector<LinearPart> parts_;  // of one expert: "layers.3.mlp.experts.*.gate_proj"
};

}  // namespace strata
