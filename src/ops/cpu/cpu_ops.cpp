// The CPU backend's birth, and the vectors it keeps.
#include "ops/cpu/cpu_ops.h"

#include "ops/cpu/matrix_rows.h"

namespace strata {

CpuOps::CpuOps(const CpuOptions& options)
    : threads_(std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cores())),
      scalar_(options.scalar) {
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
