// linear and expert_linear for many rows, weights of E2M1 codes.
#include "ops/cuda/device/tiles_four_bit.cuh"

namespace strata::cuda {

void launch_linear_tiles_fp4(const LinearArgs& args, Stream stream) {
  pick_tiles<-kElemFp4, MultiplyFourBit>(args, stream);
}

}  // namespace strata::cuda
