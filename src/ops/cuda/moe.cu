// moe for few rows, bf16 and f8 weights.
#include "ops/cuda/device/moe_few.cuh"

namespace strata::cuda {

void launch_moe_few(const MoeView& args, Stream stream) {
  if (is_four_bit(args.in.data.elem)) return launch_moe_few_four_bit(args, stream);
  args.in.data.elem == kElemF8 ? start_moe<kElemF8>(args, stream) : start_moe<kElemBF16>(args, stream);
}

}  // namespace strata::cuda
