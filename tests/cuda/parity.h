// The same inputs on the CPU and on the GPU, and how far the outputs are apart. The CPU ops are the specification.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include "ops/batch_fixture.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/batch_upload.h"
#include "ops/cuda/cuda_ops.h"

namespace strata::testing {

// A tensor on both sides; `cpu` is f32 (or what pages and states are), `gpu` may be narrower.
struct Pair {
  Tensor cpu, gpu;
  bool empty() const { return cpu.empty(); }
  Pair columns(std::int64_t begin, std::int64_t count) const { return {cpu.columns(begin, count), gpu.columns(begin, count)}; }
  Pair reshape(const Shape& shape) const { return {cpu.reshape(shape), gpu.reshape(shape)}; }
};

struct WeightPair {
  Weight cpu, gpu;
};

// Element i of an array.
inline float stored(DType dtype, const std::byte* raw, std::size_t i) {
  switch (dtype) {
    case DType::kF32: return reinterpret_cast<const float*>(raw)[i];
    case DType::kI32: return static_cast<float>(reinterpret_cast<const std::int32_t*>(raw)[i]);
    case DType::kBF16: return to_float(reinterpret_cast<const BFloat16*>(raw)[i]);
    case DType::kF16: return half_to_float(reinterpret_cast<const std::uint16_t*>(raw)[i]);
    default: return f8e4m3_to_float(reinterpret_cast<const std::uint8_t*>(raw)[i]);
  }
}

// Tests run once with bf16 activations and once with f32 ones. Skipped where there is no GPU.
class Parity : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    cpu_ = std::make_unique<CpuOps>(CpuOptions{});
    gpu_ = std::make_unique<CudaOps>(CudaOptions{.activation = GetParam()});
    upload_ = std::make_unique<cuda::BatchUpload>(*gpu_, 4 << 20);
  }
  void TearDown() override {
    upload_.reset();
    busy_ = {};
    buffers_.clear();
    gpu_.reset();
  }

  CpuOps& cpu() { return *cpu_; }
  CudaOps& gpu() { return *gpu_; }
  bool bf16() const { return GetParam() == DType::kBF16; }
  double tolerance() const { return bf16() ? 6e-3 : 1e-4; }

  // `host` on both sides; f32 values are rounded to what the GPU will hold, so that both see the same numbers.
  Pair both(HostTensor host, DType dtype) {
    hosts_.push_back(std::move(host));
    const Tensor cpu = hosts_.back();
    if (cpu.dtype() == DType::kF32 && dtype == DType::kBF16) {
      for (std::int64_t i = 0; i < cpu.elements(); ++i) {
        auto* x = cpu.data<float>() + i;
        *x = to_float(to_bfloat16(*x));
      }
    }
    buffers_.push_back(gpu_->allocate(bytes_of(dtype, cpu.elements()) + 64));
    const Tensor gpu = buffers_.back().view(dtype, cpu.shape());
    send({cpu, gpu});
    return {cpu, gpu};
  }
  Pair activations(const Shape& shape, unsigned seed, float scale = 1) { return both(random_tensor(shape, seed, scale), GetParam()); }
  Pair vector(std::int64_t n, unsigned seed, float scale = 1, float mean = 0) { return both(random_tensor({n}, seed, scale, mean), DType::kF32); }
  Pair poisoned(const Shape& shape) { return both(filled(shape, kNan), GetParam()); }
  Pair poisoned(const Shape& shape, DType dtype) { return both(filled(shape, kNan), dtype); }
  Pair ints(const std::vector<int>& values, const Shape& shape) {
    HostTensor host(shape, DType::kI32);
    std::memcpy(host.view().raw(), values.data(), values.size() * sizeof(int));
    return both(std::move(host), DType::kI32);
  }
  WeightPair weight(const HostMatrix& matrix) { return {cpu_->load(matrix, {}), gpu_->load(matrix, {})}; }
  Batch send(const HostBatch& host) { return upload_->send(host.batch); }

  // Keeps the GPU busy while the next ops are enqueued, so that their kernels overlap as those of a step do.
  void occupy(CudaOps& ops) {
    if (busy_.data() == nullptr) busy_ = gpu_->allocate(std::size_t{256} << 20);
    const Tensor x = busy_.view(DType::kF32, {8192, 8192});
    for (int i = 0; i < 8; ++i) ops.scale(x, 1, 0);
  }

  // The GPU side becomes what the CPU side is.
  void send(const Pair& p) {
    std::vector<BFloat16> narrow;
    const void* from = p.cpu.raw();
    if (p.cpu.dtype() != p.gpu.dtype()) {
      for (std::int64_t i = 0; i < p.cpu.elements(); ++i) narrow.push_back(to_bfloat16(p.cpu.data<float>()[i]));
      from = narrow.data();
    }
    gpu_->copy_to_device(p.gpu, from);
    gpu_->synchronize();
  }

  std::vector<float> fetch(const Tensor& gpu) {
    std::vector<std::byte> raw(gpu.bytes());
    gpu_->copy_to_host(raw.data(), gpu);
    gpu_->synchronize();
    std::vector<float> values(static_cast<std::size_t>(gpu.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = stored(gpu.dtype(), raw.data(), i);
    return values;
  }

  // |gpu - cpu| / |cpu| over all elements. What is NaN on the CPU (poison nobody may write) must be NaN on the GPU too.
  double distance(const Pair& p) {
    const std::vector<float> values = fetch(p.gpu);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double want = stored(p.cpu.dtype(), p.cpu.raw(), i), got = values[i];
      if (std::isnan(want) && std::isnan(got)) continue;
      error += (got - want) * (got - want);
      norm += want * want;
    }
    const double d = norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
    return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }

  std::deque<HostTensor> hosts_;
  std::deque<Buffer> buffers_;
  Buffer busy_;
  std::unique_ptr<CpuOps> cpu_;
  std::unique_ptr<CudaOps> gpu_;
  std::unique_ptr<cuda::BatchUpload> upload_;
};

inline std::string activation_name(const ::testing::TestParamInfo<DType>& p) { return std::string(name(p.param)); }

#define STRATA_PARITY(suite) \
  INSTANTIATE_TEST_SUITE_P(Activations, suite, ::testing::Values(DType::kBF16, DType::kF32), activation_name)

}  // namespace strata::testing
