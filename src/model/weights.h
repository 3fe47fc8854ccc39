// Weights: what families use to fetch, verify and load the tensors of a checkpoint, one call each.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layers/linear.h"
#include "layers/residual.h"
#include "loader/checkpoint.h"

namespace strata {

struct LoadOptions {
  std::optional<DType>
      weights;  // type to keep the large matrices in; routers, norms and vectors stay as they are
  std::optional<DType> head;        // of the output head instead; a tied embedding stays as it is
  std::optional<DType> draft_head;  // of a copy of the head, which an MTP head drafts with
  // draft_head is a wish: no copy of a small or quantised head, nor where there is no memory for it.
  bool draft_head_if_worth = false;
};

// The rows of `heads` heads of which each is `stride` rows, of which [begin, begin + count) are meant: how
// interleaved projections (query | gate per head) are put in order.
std::vector<RowRange> head_rows(std::int64_t heads, std::int64_t stride, std::int64_t begin,
                                std::int64_t count);
std::vector<RowRange> operator+(std::vector<RowRange> a, const std::vector<RowRange>& b);

// A view of a checkpoint under a prefix, and the backend that packs what is taken. Lives while a model is
// loaded, on one thread; what it returns does not need the checkpoint afterwards. Names are relative to the
// prefix. Errors name file and tensor.
class Weights {
 public:
  // `config` is the text model's where it is not the checkpoint's own as it stands.
  Weights(Checkpoint& checkpoint, Ops& ops, const LoadOptions& options = {}, std::string prefix = "",
          std::shared_ptr<const Json> config = nullptr)
      : checkpoint_(checkpoint),
        ops_(ops),
        options_(options),
        prefix_(std::move(prefix)),
        config_(std::move(config)) {}

  Weights at(std::string_view name) const;
  Weights layer(std::int64_t i) const { return at("layers." + std::to_string(i)); }
  std::string full(std::string_view name) const;  // "layers.3.self_attn.q_proj"
  bool has(std::string_view name) const { return checkpoint_.has(full(name)); }
  std::optional<Shape> shape_of(std::string_view name) const { return checkpoint_.shape_of(full(name)); }
  Tensor take(std::string_view name, const Shape& shape) const { return checkpoint_.take(full(name), shape); }
  void skip(std::string_view name) const { checkpoint_.skip(full(name)); }
  const Json& config() const { return config_ ? *config_ : checkpoint_.config().text(); }
  Ops& ops() const { return ops_; }
  const LoadOptions& options() const { return options_; }
  // The type of `name`.weight in the checkpoint, which has it.
  DType stored_type(std::string_view name) const { return *checkpoint_.dtype_of(full(name) + ".weight"); }

  // `name`.weight [dim] as f32, + add (1 where the family multiplies by 1 + w).
  Norm norm(std::string_view name, std::int64_t dim, float eps, float add = 0) const;
  // `name` itself (no ".weight") as f32, times `factor`, + add.
  Tensor vector(std::string_view name, const Shape& shape, float add = 0, float factor = 1) const;
  // The same as numbers on the host, for what is worked out at load.
  std::vector<float> numbers(std::string_view name, const Shape& shape) const;
  // The one element of `name` [1].
  float number(std::string_view name) const;

  // Several published matrices [outputs, inputs] fused by rows in the order given, each with the rows its
  // part lists; names without ".weight". Biases of those that have one are fused too, zero for the others.
  // The parts' names become full ones.
  Linear linear(std::vector<LinearPart> parts, std::int64_t inputs) const;
  // The same, kept in the checkpoint's own type whatever the options say: routers and gates.
  Linear exact(std::vector<LinearPart> parts, std::int64_t inputs) const;
  // The same in `type`.
  Linear linear(std::vector<LinearPart> parts, std::int64_t inputs, DType type) const;
  // One more copy of `name`.weight [outputs, inputs], which is of a float type and was taken before, in `type`.
  Weight copy(std::string_view name, std::int64_t outputs, std::int64_t inputs, DType type) const;
  // [vocab, dim]: an embedding table or a head.
  std::shared_ptr<const Weight> table(std::string_view name, std::int64_t vocab, std::int64_t dim) const;

  // `name`.weight [outputs, inputs] by itself.
  Weight matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs) const;

  // Expert matrices [experts, sum of outputs, inputs], in whichever layout the checkpoint has them: one by
  // one
  // ("0.gate_proj.weight"), stacked by part ("gate_proj" [E, F, D]) or fused (`fused` [E, 2F, D]). The prefix
  // is that of the experts; the parts' names become "layers.3.mlp.experts.*.gate_proj" in each.
  // `bias` [experts, sum of outputs] f32, or empty.
  ExpertLinear experts(int experts, std::vector<LinearPart> parts, std::string_view fused,
                       std::int64_t inputs, Tensor bias = {}) const;

  // `name`.weight [heads * (a + b), inputs], each head's rows first | second, as two matrices a head: the
  // first turned round [heads, inputs, a], the second as it stands [heads, b, inputs].
  std::pair<ExpertLinear, ExpertLinear> split_heads(std::string_view name, int heads, std::int64_t a,
                                                    std::int64_t b, std::int64_t inputs) const;

  // Any other matrix made of host pieces, as the options say.
  Weight pack(const HostMatrix& matrix) const;

 private:
  // Host memory made while pieces are collected (widened scales, decoded blocks); lives until the matrix is
  // packed.
  using Kept = std::vector<Buffer>;

  Linear fuse(std::vector<LinearPart> parts, std::int64_t inputs, std::optional<DType> type) const;
  // Adds [rows] of a matrix, with its block scales when it is FP8, with its factor when it is NVFP4. `matrix` is a view [outputs, inputs].
  void add_pieces(HostMatrix& to, const Tensor& matrix, const Tensor& scales,
                  const std::vector<RowRange>& rows, Kept& kept) const;
  // The scales beside an FP8 matrix as f32 [ceil(outputs / 128), ceil(inputs / 128)] (experts: [E, ...]), the
  // factor [1, 1] of an NVFP4 one, or empty.
  Tensor scales_of(const Tensor& matrix, const std::string& name, Kept& kept) const;

  Checkpoint& checkpoint_;
  Ops& ops_;
  LoadOptions options_;
  std::string prefix_;
  std::shared_ptr<const Json> config_;
};

}  // namespace strata
