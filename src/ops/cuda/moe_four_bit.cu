// moe for few rows, weights of 4 bits.
#include "ops/cuda/device/moe_few.cuh"

namespace strata::cuda {

void launch_moe_few_four_bit(const MoeView& args, Stream stream) {
  switch (args.in.data.elem) {
    case kElemInt4:
      return start_moe<kElemInt4>(args, stream);
    case kElemInt4Min:
      return start_moe<kElemInt4Min>(args, stream);
    default:
      return start_moe<kElemFp4>(args, stream);
  }
}

}  // namespace strata::cuda
