// BatchUpload: a step's batch sent to the device in one copy, to the same addresses for the same shape; and
// Staging, for smaller numbers.
#pragma once

#include <span>
#include <vector>

#include "ops/batch.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/event.h"

namespace strata::cuda {

// Pinned memory used in turn: what is written to one while the copy from the other is still under way.
class PinnedTurns {
 public:
  PinnedTurns(CudaOps& ops, std::size_t bytes, int turns);

  const Buffer& next();  // waits until what was copied from it has arrived
  void sent();           // everything from the current one is enqueued
  std::size_t turn() const { return turn_; }
  const Buffer& current() const { return pinned_[turn_]; }

 private:
  CudaOps& ops_;
  std::vector<Buffer> pinned_;
  std::vector<Event> done_;
  std::size_t turn_ = 0;
};

// One thread. Where each tensor lies follows from BatchShape and from which tensors are present, so a
// recorded graph of a shape finds the new data where the old was.
class BatchUpload {
 public:
  // `bytes`: of the largest batch. `turns`: batches sent before the host waits for the copy of the first.
  BatchUpload(CudaOps& ops, std::size_t bytes, int turns = 2)
      : ops_(ops), device_(ops.allocate(bytes)), turns_(ops, bytes, turns) {}

  // `host` is a batch of host tensors; of its page table the columns that longest_context needs are sent, the
  // others being zeros. The result is valid until the next send and may be used by whatever is enqueued after
  // this. `pairs` go with it, to `there` [N, 2]; what is enqueued next is then a take() of them.
  Batch send(const Batch& host, std::span<const int> pairs = {}, Tensor* there = nullptr);

  std::size_t capacity() const { return device_.bytes(); }

 private:
  CudaOps& ops_;
  Buffer device_;
  PinnedTurns turns_;
};

// Numbers of pinned memory to a multiple of 16 bytes on the device: few with a launch (put.h), else by a
// copy. What reads them first waits for the kernel before it.
void send_numbers(CudaOps& ops, std::byte* to, const std::byte* from, std::size_t bytes);

// Small pieces of pinned and, unless it is all on the host, device memory, one after the other. A piece stays
// as long as no more than `bytes` are taken after it.
class Staging {
 public:
  struct Place {
    std::byte *host, *device;
  };
  enum class Where : std::uint8_t { kBoth, kHost };
  Staging(CudaOps& ops, std::size_t bytes, Where where = Where::kBoth);
  Place take(std::size_t bytes);
  std::size_t capacity() const { return turns_.current().bytes(); }

 private:
  static constexpr int kTurns = 2;

  Buffer device_[kTurns];
  PinnedTurns turns_;
  std::size_t used_ = 0;
};

}  // namespace strata::cuda
