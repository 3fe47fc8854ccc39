// BatchUpload: a step's batch sent to the device in one copy, to the same addresses for the same shape; and
// Staging, for smaller numbers.
#pragma once

#include "ops/batch.h"
#include "ops/cuda/cuda_ops.h"

struct CUevent_st;

namespace strata::cuda {

// Pinned memory used in turn: what is written to one while the copy from the other is still under way.
class PinnedTurns {
 public:
  PinnedTurns(CudaOps& ops, std::size_t bytes);
  ~PinnedTurns();
  PinnedTurns(const PinnedTurns&) = delete;
  PinnedTurns& operator=(const PinnedTurns&) = delete;

  const Buffer& next();  // waits until what was copied from it has arrived
  void sent();           // everything from the current one is enqueued
  int turn() const { return turn_; }
  const Buffer& current() const { return pinned_[turn_]; }
  static constexpr int kTurns = 2;

 private:
  CudaOps& ops_;
  Buffer pinned_[kTurns];
  CUevent_st* done_[kTurns] = {};
  int turn_ = 0;
};

// One thread. Where each tensor lies follows from BatchShape and from which tensors are present, so a
// recorded graph of a shape finds the new data where the old was.
class BatchUpload {
 public:
  // `bytes`: of the largest batch.
  BatchUpload(CudaOps& ops, std::size_t bytes)
      : ops_(ops), device_(ops.allocate(bytes)), turns_(ops, bytes) {}

  // `host` is a batch of host tensors; of its page table the columns that longest_context needs are sent, the
  // others being zeros. The result is valid until the next send and may be used by whatever is enqueued after
  // this.
  Batch send(const Batch& host);

  std::size_t capacity() const { return device_.bytes(); }

 private:
  CudaOps& ops_;
  Buffer device_;
  PinnedTurns turns_;
};

// Small pieces of pinned and device memory, one after the other. A piece stays as long as no more than
// `bytes` are taken after it.
class Staging {
 public:
  struct Place {
    std::byte *host, *device;
  };
  Staging(CudaOps& ops, std::size_t bytes);
  Place take(std::size_t bytes);

 private:
  Buffer device_[PinnedTurns::kTurns];
  PinnedTurns turns_;
  std::size_t used_ = 0;
};

}  // namespace strata::cuda
