// Draws: the tokens of a step drawn on the device, where later batches can take them from.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ops/cuda/batch_upload.h"
#include "ops/cuda/busy_clock.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/event.h"
#include "ops/step_device.h"

namespace strata::cuda {

// One thread. Buffers are there for the limits' rows; only many edits or masks make them grow.
class Draws {
 public:
  // Error when the vocabulary is too large.
  Draws(CudaOps& ops, BusyClock& clock, const StepLimits& limits);
  // See StepDevice.
  std::uint64_t begin(const Tensor& logits, std::span<const DrawRow> rows);
  std::span<const Drawn> finish(std::uint64_t first);

  // Where take() finds the token of a drawn row.
  int kept_at(std::uint64_t drawn) const;
  // Enqueues tokens[row] = the token kept at `at` for each (row, at) of pairs [N, 2].
  void take(const Tensor& tokens, const Tensor& pairs);

 private:
  struct Draw {
    std::uint64_t first = 0;
    std::vector<int> logprobs;           // of each row
    const std::byte* results = nullptr;  // in host memory, when `done`
    std::size_t top_at = 0;              // the best tokens, from there
    std::size_t taken = 0;               // of results_, so far
    Event done;
  };
  Draw& draw(std::uint64_t number) { return draws_[number % draws_.size()]; }

  CudaOps& ops_;
  BusyClock& clock_;
  std::unique_ptr<Staging> jobs_;  // jobs, edits, masks
  Staging results_;
  Buffer kept_;                         // tokens of the rows drawn last, by their number modulo its size
  std::uint64_t rows_ = 0, begun_ = 0;  // so far
  std::size_t taken_ = 0;               // of results_, so far
  std::array<Draw, kMostDraws> draws_;
  std::vector<Drawn> drawn_;
  std::vector<std::vector<std::pair<float, int>>> tops_;
};

}  // namespace strata::cuda
