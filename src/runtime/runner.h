// Runner: brings a step's batch to where the backend computes, runs a model, and brings results back.
#pragma once

#include <memory>
#include <span>

#include "model/model.h"

namespace strata {

// This one is for backends whose tensors lie in host memory; others derive. One thread.
class Runner {
 public:
  explicit Runner(Ops& ops) : ops_(ops) {}
  virtual ~Runner() = default;

  Ops& ops() { return ops_; }
  // Host i32 numbers as a tensor of the backend, valid for the step.
  virtual Tensor place(std::span<const int> numbers, const Shape& shape) {
    return {const_cast<int*>(numbers.data()), DType::kI32, shape};
  }
  virtual ModelOutput forward(const Model& model, const Batch& host_batch, std::span<const Memory> memory, Tensor hidden = {}) {
    return model.forward(host_batch, memory, ops_, hidden);
  }
  // f32 results [n, V] in host memory; waits for the backend. Valid for the step.
  virtual std::span<const float> fetch(Tensor f32) { return {f32.data<float>(), static_cast<std::size_t>(f32.elements())}; }

 private:
  Ops& ops_;
};

}  // namespace strata
