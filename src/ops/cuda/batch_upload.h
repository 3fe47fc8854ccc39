// BatchUpload: a step's batch sent to the device in one copy, to the same addresses for the same shape.
#pragma once

#include "ops/batch.h"
#include "ops/cuda/cuda_ops.h"

namespace strata::cuda {

// One thread. Where each tensor lies follows from BatchShape and from which tensors are present, so a recorded graph of
// a shape finds the new data where the old was. Host memory is pinned and used in turn: while one step's copy is still
// under way the next batch can be written. Grows (and moves: drop recorded graphs) only when a batch is larger than
// `bytes`; give the largest at construction.
class BatchUpload {
 public:
  BatchUpload(CudaOps& ops, std::size_t bytes);
  ~BatchUpload();
  BatchUpload(const BatchUpload&) = delete;
  BatchUpload& operator=(const BatchUpload&) = delete;

  // `host` is a batch of host tensors; of its page table the columns that longest_context needs are sent. The result is
  // valid until the next send and may be used by whatever is enqueued after this.
  Batch send(const Batch& host);

  std::size_t capacity() const { return device_.bytes(); }

 private:
  static constexpr int kTurns = 2;

  CudaOps& ops_;
  Buffer device_;
  Buffer pinned_[kTurns];
  struct Event;  // when the copy from a pinned buffer has finished
  Event* events_[kTurns] = {};
  int turn_ = 0;
};

}  // namespace strata::cuda
