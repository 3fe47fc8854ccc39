// The CPU backend's birth, and the vectors it keeps.
#include "ops/cpu/cpu_ops.h"

#include "base/error.h"
#include "ops/cpu/amx.h"
#include "ops/cpu/matrix_rows.h"

namespace strata {
namespace {

const cpu::QuantKernels& quant_kernels(CpuIsa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case CpuIsa::kAvx2: return cpu::kQuantAvx2;
    case CpuIsa::kAvxVnni: return cpu::kQuantAvxVnni;
    case CpuIsa::kAvx512: return cpu::kQuantAvx512;
    case CpuIsa::kAmx: return cpu::kQuantAmx;
#endif
    default: return cpu::best_quant_kernels();
  }
}

}  // namespace

bool machine_has(CpuIsa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == CpuIsa::kAvx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == CpuIsa::kAvxVnni) return __builtin_cpu_supports("avxvnni");
  if (isa == CpuIsa::kAmx) return machine_has(CpuIsa::kAvx512) && cpu::amx_available();
  if (isa == CpuIsa::kAvx512) return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw");
#endif
  return isa == CpuIsa::kBest;
}

CpuOps::CpuOps(const CpuOptions& options)
    : threads_(std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cores())),
      scalar_(options.scalar) {
  if (!machine_has(options.isa)) throw Error("this machine lacks the instruction set asked for");
  kernels_.quant = &quant_kernels(options.isa);
  if (options.scalar) kernels_ = {cpu::panel_product_scalar, &cpu::kQuantScalar};
  arena_ = std::make_unique<Arena>([](std::size_t bytes) { return Buffer::host(bytes); });
}

CpuOps::~CpuOps() = default;

Tensor CpuOps::load_vector(const Tensor& host, float add) {
  vectors_.push_back(Buffer::host(static_cast<std::size_t>(host.elements()) * sizeof(float)));
  Tensor out = vectors_.back().view(DType::kF32, host.shape());
  const std::int64_t rows = host.shape().rank() == 0 ? 0 : host.rows(), width = host.row_size();
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = out.row<float>(r);
    cpu::widen_row(host.dtype(), host.raw() + bytes_of(host.dtype(), r * host.stride()), width, to);
    for (std::int64_t i = 0; i < width; ++i) to[i] += add;
  }
  return out;
}

}  // namespace strata
