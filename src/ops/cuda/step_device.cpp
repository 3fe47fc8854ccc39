#include "ops/cuda/step_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "ops/cuda/cuda_error.h"

namespace strata::cuda {
namespace {

class Graph final : public Recording {
 public:
  Graph(cudaGraphExec_t graph, CudaOps& ops) : graph_(graph), ops_(ops) {}
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  void replay() override {
    check_cuda(cudaGraphLaunch(graph_, ops_.stream()), "graph launch");
    ++ops_.counters().replays;
  }

 private:
  cudaGraphExec_t graph_;
  CudaOps& ops_;
};

// Numbers of padded batches, each tensor at a multiple of 256 bytes.
std::size_t upload_bytes(const StepLimits& l) {
  constexpr std::size_t kTensors = 16, kAlign = 256;
  const auto n = [](int x) { return static_cast<std::size_t>(x); };
  const std::size_t numbers = n(l.rows) * 11 + n(l.sequences) * (n(l.pages) + 8) + 2 * n(l.logit_rows);
  return numbers * sizeof(std::int32_t) + kTensors * kAlign;
}

constexpr int kUploads = 8;  // before the host waits: those of a drafter's passes

// Pairs of rows that drafting copies: a few of each row.
std::size_t number_bytes(const StepLimits& l) {
  return std::max<std::size_t>(std::size_t{1} << 20, static_cast<std::size_t>(l.rows) * 128);
}

}  // namespace

CudaStepDevice::CudaStepDevice(CudaOps& ops, const StepLimits& limits)
    : ops_(ops),
      clock_(ops.stream()),
      upload_(ops, upload_bytes(limits), kUploads),
      numbers_(ops, number_bytes(limits)),
      draws_(ops, clock_, limits) {}

CudaStepDevice::~CudaStepDevice() { cudaStreamSynchronize(ops_.stream()); }

Batch CudaStepDevice::upload(const Batch& host, std::span<const TokenSource> drawn) {
  ++ops_.counters().uploads;
  clock_.enter();
  pairs_.clear();
  for (const TokenSource& t : drawn) {
    STRATA_CHECK(t.row >= 0 && t.row < host.shape.rows, "token {} of {}", t.row, host.shape.rows);
    pairs_.insert(pairs_.end(), {t.row, draws_.kept_at(t.drawn)});
  }
  Tensor pairs;
  const Batch batch = upload_.send(host, pairs_, &pairs);
  draws_.take(batch.tokens, pairs);
  return batch;
}

Tensor CudaStepDevice::place(std::span<const int> numbers, const Shape& shape) {
  if (numbers.empty()) return {};
  STRATA_CHECK(static_cast<std::int64_t>(numbers.size()) == shape.elements(), "{} numbers for {}",
               numbers.size(), shape.to_string());
  clock_.enter();
  const Staging::Place place = numbers_.take(numbers.size_bytes());
  std::memcpy(place.host, numbers.data(), numbers.size_bytes());
  send_numbers(ops_, place.device, place.host, numbers.size_bytes());
  return {place.device, DType::kI32, shape, Device::kCuda};
}

std::unique_ptr<Recording> CudaStepDevice::record(const std::function<void()>& step) {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(ops_.stream(), cudaStreamCaptureModeThreadLocal), "begin capture");
  try {
    step();
  } catch (...) {
    cudaStreamEndCapture(ops_.stream(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check_cuda(cudaStreamEndCapture(ops_.stream(), &graph), "end capture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(made, "graph instantiation");
  ++ops_.counters().recordings;
  return std::make_unique<Graph>(executable, ops_);
}

std::span<const float> CudaStepDevice::fetch(const Tensor& values) {
  if (values.bytes() > fetched_.bytes()) fetched_ = ops_.allocate_pinned(values.bytes());
  clock_.enter();
  ops_.copy_to_host(fetched_.data(), values);
  clock_.leave();
  ops_.synchronize();
  clock_.settle();
  return {reinterpret_cast<const float*>(fetched_.data()), static_cast<std::size_t>(values.elements())};
}

}  // namespace strata::cuda
