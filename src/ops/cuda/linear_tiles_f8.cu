// linear and expert_linear for many rows, f8 weights: products of f8 with the f8 planes of x
// (quantise_rows.cu). The tensor cores keep few bits of an f8 sum, so the sums of one block of 128 k are
// begun anew and added in f32, times the block's scale.
#include "ops/cuda/device/tiles.cuh"

namespace strata::cuda {
namespace {

template <typename C>
struct MultiplyF8 {
  template <int N>
  static __device__ __forceinline__ void run(Consumer<C>& c, const TileInfo<C>& info, int begin, int end,
                                             float (&sum)[C::kGroups][N / 2]) {
    const LinearArgs& a = c.a;
    int scales[C::kGroups][2];  // where those of rows g and g + 8 of each group begin
#pragma unroll
    for (int i = 0; i < C::kGroups; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t n =
            min(info.output + weight_row<C>(a, c.group, i) + c.warp * 16 + c.g + half * 8, a.w.outputs - 1);
        scales[i][half] =
            static_cast<int>((info.expert * a.w.outputs + n) / a.w.scale_rows * a.w.scale_columns);
      }
#pragma unroll
      for (int j = 0; j < N / 2; ++j) sum[i][j] = 0;
    }
    for (int block = begin; block < end; ++block, c.ring.next()) {
      const std::uint32_t stage = c.take_stage();
      // Groups at a time, as many as registers hold: while this consumer adds, the other one's products run.
      constexpr int kTogether = C::kGroups * N <= 128 ? C::kGroups : 1;
#pragma unroll
      for (int i0 = 0; i0 < C::kGroups; i0 += kTogether) {
        float part[kTogether][N / 2], scale[kTogether][2];
#pragma unroll
        for (int i = 0; i < 2 * kTogether; ++i)
          scale[i / 2][i % 2] = a.w.scales[scales[i0 + i / 2][i % 2] + block];
        if constexpr (C::kInTurns) c.take_turn();
        products_begin();
#pragma unroll
        for (int j = 0; j < 4 * C::kPlanes; ++j) {  // the small plane first
#pragma unroll
          for (int i = 0; i < kTogether; ++i)
            Product<N>::shared_f8(part[i], c.weights_of(stage, i0 + i) + 2 * (j % 4),
                                  c.rows_of(stage, C::kPlanes - 1 - j / 4) + 2 * (j % 4), j > 0);
        }
        products_commit();
        if constexpr (C::kInTurns) c.give_turn();
        products_wait<0>();
        if (i0 + kTogether == C::kGroups) c.release(c.ring.stage);
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
#pragma unroll
          for (int j = 0; j < N / 2; ++j) {
            asm volatile("" : "+f"(part[i][j]));  // not before the wait
            sum[i0 + i][j] += scale[i][j / 2 % 2] * part[i][j];
          }
        }
      }
    }
  }
};

}  // namespace

void launch_linear_tiles_f8(const LinearArgs& args, Stream stream) {
  args.planes == 1 ? pick_tiles<1, MultiplyF8>(args, stream) : pick_tiles<2, MultiplyF8>(args, stream);
}

}  // namespace strata::cuda
