// The CUDA backend's birth, memory and vectors.
#include "ops/cuda/cuda_ops.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/cpu/matrix_rows.h"
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/step_device.h"
#include "tensor/out_of_memory.h"

namespace strata {
int cuda_devices(std::string* why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count;
  if (why != nullptr) *why = cudaGetErrorString(error);
  (void)cudaGetLastError();
  return 0;
}

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) { return std::make_unique<CudaOps>(options); }

CudaOps::CudaOps(const CudaOptions& options) : options_(options) {
  STRATA_CHECK(options.activation == DType::kBF16 || options.activation == DType::kF32, "activations of {} on CUDA",
               name(options.activation));
  std::string why = "no device";
  const int devices = cuda_devices(&why);
  if (devices == 0) throw Error("no CUDA device: {}", why);
  if (options.device < 0 || options.device >= devices) throw Error("CUDA device {}: this machine has {}", options.device, devices);
  cudaDeviceProp properties{};
  cuda::check_cuda(cudaGetDeviceProperties(&properties, options.device), "device properties");
  if (properties.major != 9 || properties.minor != 0) {
    throw Error("CUDA device {} ({}) has compute capability {}.{}; this build is for 9.0 (Hopper)", options.device,
                properties.name, properties.major, properties.minor);
  }
  processors_ = properties.multiProcessorCount;
  cuda::check_cuda(cudaSetDevice(options.device), "set device");
  cuda::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  arrived_ = allocate(sizeof(unsigned));
  arena_ = std::make_unique<Arena>([this](std::size_t bytes) { return allocate(bytes); }, options.arena_block);
}

CudaOps::~CudaOps() {
  cudaStreamSynchronize(stream_);
  arena_.reset();
  vectors_.clear();
  cudaStreamDestroy(stream_);
}

Buffer CudaOps::allocate(std::size_t bytes) {
  void* data = nullptr;
  ++counters_.allocations;
  const cudaError_t error = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory("no room for {} MiB of device memory ({} MiB free)", bytes >> 20, cuda_free_bytes() >> 20);
  }
  cuda::check_cuda(error, "allocation");
  Buffer buffer(data, bytes, Device::kCuda, [](void* p, std::size_t) { cudaFree(p); });
  cuda::check_cuda(cudaMemsetAsync(data, 0, bytes, stream_), "clearing memory");
  cuda::check_cuda(cudaStreamSynchronize(stream_), "clearing memory");
  return buffer;
}

Buffer CudaOps::allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  ++counters_.allocations;
  cuda::check_cuda(cudaMallocHost(&data, std::max<std::size_t>(bytes, 1)), "pinned memory");
  return {data, bytes, Device::kCpu, [](void* p, std::size_t) { cudaFreeHost(p); }};
}

std::unique_ptr<StepDevice> CudaOps::make_step_device(const StepLimits& limits) {
  return std::make_unique<cuda::CudaStepDevice>(*this, limits);
}

void CudaOps::write(const Tensor& to, const void* from) {
  copy_to_device(to, from);
  synchronize();
}

void CudaOps::read(void* to, const Tensor& from) {
  copy_to_host(to, from);
  synchronize();
}

Tensor CudaOps::load_vector(const Tensor& host, float add) {
  std::vector<float> values(static_cast<std::size_t>(host.elements()));
  const std::int64_t rows = host.shape().rank() == 0 ? 0 : host.rows(), width = host.row_size();
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = values.data() + r * width;
    cpu::widen_row(host.dtype(), host.raw() + bytes_of(host.dtype(), r * host.stride()), width, to);
    for (std::int64_t i = 0; i < width; ++i) to[i] += add;
  }
  vectors_.push_back(allocate(values.size() * sizeof(float)));
  const Tensor out = vectors_.back().view(DType::kF32, host.shape());
  copy_to_device(out, values.data());
  return out;
}

std::size_t cuda_free_bytes() {
  std::size_t free = 0, total = 0;
  cuda::check_cuda(cudaMemGetInfo(&free, &total), "memory info");
  return free;
}

void CudaOps::synchronize() {
  ++counters_.waits;
  cuda::check_cuda(cudaStreamSynchronize(stream_), "step");
}

void CudaOps::copy_to_device(const Tensor& to, const void* from) {
  STRATA_CHECK(to.contiguous() && to.device() == Device::kCuda, "copy to {} with stride {}", to.shape().to_string(), to.stride());
  cuda::check_cuda(cudaMemcpyAsync(to.raw(), from, to.bytes(), cudaMemcpyHostToDevice, stream_), "copy to the device");
}

void CudaOps::copy_to_host(void* to, const Tensor& from) {
  STRATA_CHECK(from.contiguous() && from.device() == Device::kCuda, "copy of {} with stride {}", from.shape().to_string(),
               from.stride());
  cuda::check_cuda(cudaMemcpyAsync(to, from.raw(), from.bytes(), cudaMemcpyDeviceToHost, stream_), "copy to the host");
}

}  // namespace strata
