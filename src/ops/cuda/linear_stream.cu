// linear and expert_linear for few rows, bf16 and f8 weights.
#include "ops/cuda/device/stream_product.cuh"

namespace strata::cuda {

void launch_linear_stream(const LinearArgs& args, Stream stream) {
  if (is_four_bit(args.w.data.elem)) return launch_linear_stream_four_bit(args, stream);
  args.w.data.elem == kElemF8 ? launch_stream<kElemF8>(args, stream) : launch_stream<kElemBF16>(args, stream);
}

void launch_linear_pair(const LinearArgs& narrow, const LinearArgs& bf16, Stream stream) {
  if (is_four_bit(narrow.w.data.elem)) return launch_linear_pair_four_bit(narrow, bf16, stream);
  launch_pair<kElemF8>(narrow, bf16, stream);
}

}  // namespace strata::cuda
