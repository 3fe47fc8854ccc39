// Draws: the tokens of a step drawn on the device.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "ops/cuda/busy_clock.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/step_device.h"

namespace strata::cuda {

// One thread. Buffers are there for the limits' rows; only many edits or masks make them grow.
class Draws {
 public:
  // Error when the vocabulary is too large.
  Draws(CudaOps& ops, BusyClock& clock, const StepLimits& limits);
  // See StepDevice::draw.
  std::span<const Drawn> operator()(const Tensor& logits, std::span<const DrawRow> rows);

 private:
  void reserve(std::size_t in_bytes, std::size_t rows);
  std::size_t top_at() const;

  CudaOps& ops_;
  BusyClock& clock_;
  Buffer in_, in_host_, out_, out_host_;  // jobs, edits, masks; results, best tokens
  std::size_t rows_ = 0;
  std::vector<Drawn> drawn_;
  std::vector<std::vector<std::pair<float, int>>> tops_;
};

}  // namespace strata::cuda
