// CudaStepDevice: a step's numbers sent from pinned memory, steps recorded as CUDA graphs, results brought
// back.
#pragma once

#include "ops/cuda/batch_upload.h"
#include "ops/cuda/draws.h"

namespace strata::cuda {

// See StepDevice and DeviceClock. Must go before its backend does.
class CudaStepDevice final : public StepDevice, public DeviceClock {
 public:
  CudaStepDevice(CudaOps& ops, const StepLimits& limits);
  ~CudaStepDevice() override;

  Batch upload(const Batch& host, std::span<const TokenSource> drawn) override;
  Tensor place(std::span<const int> numbers, const Shape& shape) override;
  std::unique_ptr<Recording> record(const std::function<void()>& step) override;
  std::span<const float> fetch(const Tensor& values) override;
  std::uint64_t begin_draw(const Tensor& logits, std::span<const DrawRow> rows) override {
    return draws_.begin(logits, rows);
  }
  std::span<const Drawn> finish_draw(std::uint64_t first) override { return draws_.finish(first); }
  const StepCounters& counters() override { return ops_.counters(); }
  DeviceClock* clock() override { return this; }
  void begin(StepPart part) override { clock_.part(part); }
  double seconds(StepPart part) const override { return clock_.seconds(part); }

 private:
  CudaOps& ops_;
  BusyClock clock_;
  BatchUpload upload_;
  Staging numbers_;
  Draws draws_;
  std::vector<int> pairs_;
  Buffer fetched_;
};

}  // namespace strata::cuda
