// linear and expert_linear for few rows, weights of 4 bits.
#include "ops/cuda/device/stream_product.cuh"

namespace strata::cuda {

void launch_linear_stream_four_bit(const LinearArgs& args, Stream stream) {
  switch (args.w.data.elem) {
    case kElemInt4:
      return launch_stream<kElemInt4>(args, stream);
    case kElemInt4Min:
      return launch_stream<kElemInt4Min>(args, stream);
    default:
      return launch_stream<kElemFp4>(args, stream);
  }
}

void launch_linear_pair_four_bit(const LinearArgs& narrow, const LinearArgs& bf16, Stream stream) {
  switch (narrow.w.data.elem) {
    case kElemInt4:
      return launch_pair<kElemInt4>(narrow, bf16, stream);
    case kElemInt4Min:
      return launch_pair<kElemInt4Min>(narrow, bf16, stream);
    default:
      return launch_pair<kElemFp4>(narrow, bf16, stream);
  }
}

}  // namespace strata::cuda
