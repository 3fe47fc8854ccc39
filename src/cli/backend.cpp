#include "cli/backend.h"

#include "base/error.h"
#include "cli/timed_ops.h"
#ifdef STRATA_CUDA
#include "ops/cuda/make_cuda_ops.h"
#endif

namespace strata {

std::shared_ptr<Ops> make_backend(const BackendFlags& flags) {
  const CpuOptions options{.threads = flags.threads};
  if (flags.f8_activations && flags.name == "cpu") throw Error("--activations fp8 needs --backend cuda");
  if (flags.f8_activations && flags.f32) throw Error("--activations fp8 beside --weights f32, which computes everything in f32");
  if (flags.name == "cpu" && flags.times != nullptr) return std::make_shared<TimedOps>(options, *flags.times);
  if (flags.name == "cpu") return std::make_shared<CpuOps>(options);
  if (flags.times != nullptr) throw Error("ops are timed on the CPU only");
  if (flags.name != "cuda") throw Error("--backend must be cpu or cuda, is '{}'", flags.name);
#ifdef STRATA_CUDA
  return make_cuda_ops({.activation = flags.f32 ? DType::kF32 : DType::kBF16,
                        .f8_activations = flags.f8_activations,
                        .dummy_weights = flags.dummy});
#else
  throw Error("--backend cuda: this build is for the CPU only (configure with the preset cuda)");
#endif
}

std::size_t default_memory(const Ops& ops, std::size_t scratch) {
  if (ops.device() == Device::kCpu) return std::size_t{1} << 30;
#ifdef STRATA_CUDA
  const std::size_t free = cuda_free_bytes(), usable = free / 10 * 9;
  if (usable <= scratch)
    throw Error("{} MiB of device memory are free; a step takes {} MiB", free >> 20, scratch >> 20);
  return usable - scratch;
#else
  return scratch;
#endif
}

}  // namespace strata
