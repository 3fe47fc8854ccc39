// lora, expert_lora: not on this backend yet.
#include "base/error.h"
#include "ops/cuda/cuda_ops.h"

namespace strata {

void CudaOps::lora(Tensor, Tensor, const LoraTable&, Tensor) {
  throw Error("LoRA adapters run on the CPU only");
}

void CudaOps::expert_lora(Tensor, Tensor, const Routing&, const LoraTable&, Tensor) {
  throw Error("LoRA adapters run on the CPU only");
}

void CudaOps::set_lora(LoraTable&, int, const LoraPair*) { throw Error("LoRA adapters run on the CPU only"); }

}  // namespace strata
