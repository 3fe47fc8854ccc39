#include "ops/cuda/batch_upload.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "ops/cuda/cuda_error.h"

namespace strata::cuda {
namespace {

constexpr std::size_t kAlign = 256;

Buffer pinned(std::size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMallocHost(&data, bytes), "pinned memory");
  return {data, bytes, Device::kCpu, [](void* p, std::size_t) { cudaFreeHost(p); }};
}

// Copies `columns` of every row of `from` to `at` and gives the device view of it; advances `at`.
Tensor pack(const Tensor& from, std::int64_t columns, const Buffer& host, const Buffer& device, std::size_t& at) {
  if (from.empty()) return {};
  const std::int64_t rows = from.rows();
  Shape shape = from.shape();
  if (from.shape().rank() == 2) shape = Shape{rows, columns};
  const std::size_t width = static_cast<std::size_t>(columns) * sizeof(std::int32_t);
  STRATA_CHECK(at + width * static_cast<std::size_t>(rows) <= host.bytes(), "a batch of more than {} bytes", host.bytes());
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(host.data() + at + static_cast<std::size_t>(r) * width, from.row<std::int32_t>(r), width);
  }
  const Tensor to = device.view(DType::kI32, shape, at);
  at += (width * static_cast<std::size_t>(rows) + kAlign - 1) / kAlign * kAlign;
  return to;
}

}  // namespace

struct BatchUpload::Event {
  cudaEvent_t done = nullptr;
};

BatchUpload::BatchUpload(CudaOps& ops, std::size_t bytes) : ops_(ops), device_(ops.allocate(bytes)) {
  for (int i = 0; i < kTurns; ++i) {
    pinned_[i] = pinned(bytes);
    events_[i] = new Event;
    check_cuda(cudaEventCreateWithFlags(&events_[i]->done, cudaEventDisableTiming), "event");
  }
}

BatchUpload::~BatchUpload() {
  for (Event* e : events_) {
    if (e != nullptr) cudaEventDestroy(e->done);
    delete e;
  }
}

Batch BatchUpload::send(const Batch& host) {
  turn_ = (turn_ + 1) % kTurns;
  check_cuda(cudaEventSynchronize(events_[turn_]->done), "wait for an upload");
  const Buffer& from = pinned_[turn_];
  std::size_t at = 0;
  Batch batch;
  batch.shape = host.shape;
  const auto whole = [&](const Tensor& t) { return pack(t, t.empty() ? 0 : t.row_size(), from, device_, at); };
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
  check_cuda(cudaMemcpyAsync(device_.data(), from.data(), at, cudaMemcpyHostToDevice, ops_.stream()), "batch upload");
  check_cuda(cudaEventRecord(events_[turn_]->done, ops_.stream()), "batch upload");
  return batch;
}

}  // namespace strata::cuda
