// Whole models run step by step on either backend, with everything written down that runs are compared by.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "model/registry.h"
#include "ops/batch_fixture.h"
#include "ops/cuda/batch_upload.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/rounded_ops.h"

namespace strata::testing {

inline constexpr int kSlots = 6;

// CudaOps that writes down what route() chose, or makes it choose; and, to show that a test sees it, an op
// that is off.
class RecordingCudaOps final : public CudaOps {
 public:
  using CudaOps::CudaOps;

  std::vector<Choices> chosen;
  const std::vector<Choices>* forced = nullptr;
  float attention_factor = 1;  // attention's outputs are so many times what they should be

  Routing route(const RouteArgs& args, int k) override;
  void moe(const MoeArgs& args) override { Ops::moe(args); }  // op by op: choices are seen and set in route
  void attention(const AttentionArgs& args, const Batch& batch) override;
};

struct ModelRun {
  std::vector<std::vector<float>> logits;  // of each row of each step, padding too
  std::vector<Choices> chosen;
  std::vector<std::vector<std::vector<float>>> streams;  // [step][layer]: entering it, and after the last
};

// The steps of a run, as the runtime makes them: prompts in chunks, several sequences, padding, verify rows
// with and without tapes.
std::vector<Step> model_steps();
std::size_t rows_of(const Step& step);
// Whether each row of all steps is padding.
std::vector<bool> padding_rows();

// Memory of all layers.
std::vector<Memory> memory_of(const Model& model, Ops& ops, int pages, std::deque<Buffer>& buffers,
                              DType kv_dtype);

struct RunOptions {
  const std::vector<Choices>* forced = nullptr;  // experts to choose
  const ModelRun* teacher = nullptr;             // its stream goes into every layer
};
ModelRun run_model(const Model& model, RoundedOps& ops, DType kv_dtype, const RunOptions& options = {});
ModelRun run_model(const Model& model, RecordingCudaOps& ops, const RunOptions& options = {});

// Relative error of each row's logits, without padding.
std::vector<double> row_errors(const ModelRun& got, const ModelRun& want);
// Of each layer in a run with a teacher: |stream after - the teacher's| / |what the layer added|.
std::vector<double> layer_errors(const ModelRun& got, const ModelRun& teacher);
// The i-th smallest of so many tenths.
double tenths(std::vector<double> values, int i);

}  // namespace strata::testing
