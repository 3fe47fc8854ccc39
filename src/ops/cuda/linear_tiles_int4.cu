// linear and expert_linear for many rows, weights of 4-bit integers.
#include "ops/cuda/device/tiles_four_bit.cuh"

namespace strata::cuda {

void launch_linear_tiles_int4(const LinearArgs& args, Stream stream) {
  pick_tiles<-kElemInt4, MultiplyFourBit>(args, stream);
}

}  // namespace strata::cuda
