// linear and expert_linear for many rows, bf16 weights.
#include "ops/cuda/device/tiles.cuh"

namespace strata::cuda {
namespace {

template <typename C>
struct MultiplyBf16 {
  template <int N>
  static __device__ __forceinline__ void run(Consumer<C>& c, const TileInfo<C>&, int begin, int end,
                                             float (&sum)[C::kGroups][N / 2]) {
    c.clear(sum);
    int before = -1;  // stage whose products may still be running
    for (int block = begin; block < end; ++block, c.ring.next()) {
      const std::uint32_t stage = c.take_stage();
      products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < C::kGroups; ++i)
          Product<N>::shared(sum[i], c.weights_of(stage, i) + 2 * j, c.rows_of(stage, 0) + 2 * j, true);
      }
      products_commit();
      products_wait<1>();
      if (before >= 0) c.release(before);
      before = c.ring.stage;
    }
    products_wait<0>();
    c.release(before);
  }
};

}  // namespace

void launch_linear_tiles(const LinearArgs& args, Stream stream) { pick_tiles<0, MultiplyBf16>(args, stream); }

}  // namespace strata::cuda
