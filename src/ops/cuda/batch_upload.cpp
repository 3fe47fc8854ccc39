#include "ops/cuda/batch_upload.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "ops/cuda/cuda_error.h"
#include "ops/cuda/put.h"

namespace strata::cuda {
namespace {

constexpr std::size_t kAlign = 256;

// Copies `columns` of every row of `from` to `at` and gives the device view of it; advances `at`.
Tensor pack(const Tensor& from, std::int64_t columns, const Buffer& host, const Buffer& device,
            std::size_t& at) {
  if (from.empty()) return {};
  const std::int64_t rows = from.rows();
  Shape shape = from.shape();
  if (from.shape().rank() == 2) shape = Shape{rows, columns};
  const std::size_t width = static_cast<std::size_t>(columns) * sizeof(std::int32_t);
  STRATA_CHECK(at + width * static_cast<std::size_t>(rows) <= host.bytes(), "a batch of more than {} bytes",
               host.bytes());
  const std::size_t given = std::min(width, static_cast<std::size_t>(from.row_size()) * sizeof(std::int32_t));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::byte* row = host.data() + at + static_cast<std::size_t>(r) * width;
    std::memcpy(row, from.row<std::int32_t>(r), given);
    std::memset(row + given, 0, width - given);
  }
  const Tensor to = device.view(DType::kI32, shape, at);
  at += (width * static_cast<std::size_t>(rows) + kAlign - 1) / kAlign * kAlign;
  return to;
}

}  // namespace

PinnedTurns::PinnedTurns(CudaOps& ops, std::size_t bytes, int turns) : ops_(ops) {
  for (int i = 0; i < turns; ++i) {
    pinned_.push_back(ops.allocate_pinned(bytes));
    done_.emplace_back();
  }
}

const Buffer& PinnedTurns::next() {
  turn_ = (turn_ + 1) % done_.size();
  ops_.counters().waits += done_[turn_].wait() ? 1 : 0;
  return current();
}

void PinnedTurns::sent() { done_[turn_].record(ops_.stream()); }

Staging::Staging(CudaOps& ops, std::size_t bytes, Where where) : turns_(ops, bytes, kTurns) {
  if (where == Where::kHost) return;
  for (Buffer& b : device_) b = ops.allocate(bytes);
}

Staging::Place Staging::take(std::size_t bytes) {
  STRATA_CHECK(bytes <= capacity(), "{} bytes to place, at most {}", bytes, capacity());
  if (used_ + bytes > capacity()) {
    turns_.sent();
    turns_.next();
    used_ = 0;
  }
  std::byte* device = device_[turns_.turn()].data();
  const Place place{turns_.current().data() + used_, device == nullptr ? nullptr : device + used_};
  used_ += (bytes + kAlign - 1) / kAlign * kAlign;
  return place;
}

void send_numbers(CudaOps& ops, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes <= kMostPutBytes) return launch_put(to, from, bytes, ops.stream());
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, ops.stream()), "sending numbers");
}

Batch BatchUpload::send(const Batch& host, std::span<const int> pairs, Tensor* there) {
  const Buffer& from = turns_.next();
  std::size_t at = 0;
  Batch batch;
  batch.shape = host.shape;
  const auto whole = [&](const Tensor& t) {
    return pack(t, t.empty() ? 0 : t.row_size(), from, device_, at);
  };
  const std::int64_t pages = (host.shape.longest_context + kPageTokens - 1) / kPageTokens;
  batch.tokens = whole(host.tokens);
  batch.positions = whole(host.positions);
  batch.sequence = whole(host.sequence);
  batch.first = whole(host.first);
  batch.start = whole(host.start);
  batch.page_table = pack(host.page_table, std::max<std::int64_t>(pages, 1), from, device_, at);
  batch.kv_slots = whole(host.kv_slots);
  batch.state_in = whole(host.state_in);
  batch.saves = whole(host.saves);
  batch.adapters = whole(host.adapters);
  batch.logit_adapters = whole(host.logit_adapters);
  batch.lora = host.lora;
  batch.logit_rows = whole(host.logit_rows);
  batch.tape = whole(host.tape);
  batch.replay = whole(host.replay);
  batch.state_out = whole(host.state_out);
  if (!pairs.empty()) {  // last: the others' places stay the same
    *there = whole(
        {const_cast<int*>(pairs.data()), DType::kI32, {static_cast<std::int64_t>(pairs.size() / 2), 2}});
  }
  if (pairs.empty()) {  // the next kernel may read the batch before it waits
    check_cuda(cudaMemcpyAsync(device_.data(), from.data(), at, cudaMemcpyHostToDevice, ops_.stream()),
               "batch upload");
  } else {
    send_numbers(ops_, device_.data(), from.data(), at);
  }
  turns_.sent();
  return batch;
}

}  // namespace strata::cuda
