// Products of many rows with weights of 4 bits: a consumer widens its codes in registers, which are the left
// operands.
#pragma once

#include "ops/cuda/device/four_bit.cuh"
#include "ops/cuda/device/tiles.cuh"

namespace strata::cuda {

// A lane's share of 16 rows of a block, rows g and g + 8.
template <int E>
struct FourBitRows {
  uint4 words[2];
  uint2 scale[2], minimum[2];

  __device__ __forceinline__ void load(const std::uint8_t* block, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      words[i] = *reinterpret_cast<const uint4*>(block + i * 512 + lane * 16);
      const std::uint8_t* s = block + four_scale(E, g + 8 * i, t * 8);
      if constexpr (E == kElemFp4) {
        scale[i].x = *reinterpret_cast<const std::uint32_t*>(s);
      } else {
        scale[i] = *reinterpret_cast<const uint2*>(s);
      }
      if constexpr (E == kElemInt4Min) minimum[i] = *reinterpret_cast<const uint2*>(s + kFourScales);
    }
  }

  // Inputs 32 j .. + 31, as the left operands of two products. Integers: rounded to bf16, from scales that
  // are two bf16 each.
  __device__ __forceinline__ void widen(int j, std::uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4& w = words[i];
      const std::uint32_t word = j == 0 ? w.x : j == 1 ? w.y : j == 2 ? w.z : w.w;
      std::uint32_t pairs[4];
      if constexpr (E == kElemFp4) {
        widen_fp4(word, fp4_scale(scale[i].x, j), pairs);
      } else {
        constexpr bool kMinimum = E == kElemInt4Min;
        widen_int4<kMinimum ? 0 : 8>(word, pairs);
        const Split by(scale[i], j), add = kMinimum ? Split(minimum[i], j) : by;
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const auto code = reinterpret_cast<const __nv_bfloat162&>(pairs[p]);
          const __nv_bfloat162 x =
              kMinimum ? __hadd2(__hfma2(code, by.high, add.high), __hfma2(code, by.low, add.low))
                       : __hfma2(code, by.high, __hmul2(code, by.low));
          pairs[p] = reinterpret_cast<const std::uint32_t&>(x);
        }
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) a[p / 2][i + p % 2 * 2] = pairs[p];
    }
  }

 private:
  // Number j of four f16 as a sum of two bf16.
  struct Split {
    __nv_bfloat162 high, low;
    __device__ __forceinline__ Split(const uint2& four, int j) {
      const std::uint32_t two = j < 2 ? four.x : four.y;
      const auto both = reinterpret_cast<const __half2&>(two);
      const float f = j % 2 == 0 ? __low2float(both) : __high2float(both);
      const __nv_bfloat16 h = __float2bfloat16_rn(f);
      high = __bfloat162bfloat162(h);
      low = __bfloat162bfloat162(__float2bfloat16_rn(f - __bfloat162float(h)));
    }
  };
};

template <typename C>
struct MultiplyFourBit {
  template <int N>
  static __device__ __forceinline__ void run(Consumer<C>& c, const TileInfo<C>&, int begin, int end,
                                             float (&sum)[C::kGroups][N / 2]) {
    c.clear(sum);
    std::uint32_t a[2][2][4];  // left operands of two products in flight, and of the next two
    int before = -1;           // stage whose products may still be running
    for (int block = begin; block < end; ++block, c.ring.next()) {
      const std::uint32_t stage = c.take_stage();
#pragma unroll
      for (int i = 0; i < C::kGroups; ++i) {
        FourBitRows<C::kElem> rows;
        rows.load(c.block_of(i), c.lane);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          rows.widen(j, a[j % 2]);
          products_begin();
#pragma unroll
          for (int half = 0; half < 2; ++half)
            Product<N>::registers(sum[i], a[j % 2][half], c.rows_of(stage, j / 2) + 4 * (j % 2) + 2 * half,
                                  true);
          products_commit();
          products_wait<1>();
          if (i + j == 0 && before >= 0) c.release(before);
        }
      }
      before = c.ring.stage;
    }
    products_wait<0>();
    c.release(before);
  }
};

}  // namespace strata::cuda
