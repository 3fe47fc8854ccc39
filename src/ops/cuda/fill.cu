// fill: numbers that are nearly normal, from a hash of their place.
#include "ops/cuda/device/four_bit.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/fill.h"

namespace strata::cuda {
namespace {

// The finaliser of MurmurHash3 (Appleby).
__device__ __forceinline__ std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

__global__ void __launch_bounds__(256) fill_kernel(FillArgs a) {
  begin_kernel();
  const std::int64_t step = std::int64_t{gridDim.x} * 256;
  for (std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x; i < a.rows * a.to.stride; i += step) {
    const std::uint64_t bits = mix(static_cast<std::uint64_t>(i) + (std::uint64_t{a.seed} << 40));
    int sum = 0;  // of eight bytes: mean 1020, deviation sqrt(8 (256^2 - 1) / 12) = 209
#pragma unroll
    for (int b = 0; b < 8; ++b) sum += static_cast<int>(bits >> (8 * b) & 0xff);
    const float x = a.mean + a.deviation * (static_cast<float>(sum) - 1020.0F) / 209.0F;
    store_elem(a.to.data, a.to.elem, i, i % a.to.stride < a.columns ? x : 0.0F);
  }
}

__global__ void __launch_bounds__(256) fill_four_bit_kernel(FillFourBitArgs a) {
  begin_kernel();
  const std::int64_t step = std::int64_t{gridDim.x} * 256,
                     first = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  const int bytes = four_block_bytes(a.to.elem);
  auto* words = static_cast<std::uint32_t*>(a.to.data);
  // Deviation of random codes: 4.2 to 4.6 of integers, 2.93 of E2M1. The scale's byte 120 means 2^-15.
  const __half2 scale = __float2half2_rn(a.deviation / 4.6F), zero = __float2half2_rn(0);
  for (std::int64_t i = first; i < a.groups * a.to.stride / 4; i += step) {
    const int at = static_cast<int>(i * 4 % bytes);
    auto codes =
        static_cast<std::uint32_t>(mix(static_cast<std::uint64_t>(i) + (std::uint64_t{a.seed} << 40)));
    // Integers -7 to 7: 0 becomes 8, so that their mean is zero.
    if (a.to.elem == kElemInt4) codes |= (~(codes | codes >> 1 | codes >> 2 | codes >> 3) & 0x11111111U) << 3;
    words[i] = at < kFourCodes                 ? codes
               : a.to.elem == kElemFp4         ? 0x78787878U
               : at < kFourCodes + kFourScales ? reinterpret_cast<const std::uint32_t&>(scale)
                                               : reinterpret_cast<const std::uint32_t&>(zero);
  }
  if (a.factors == nullptr) return;
  for (std::int64_t i = first; i < a.groups * kFourRows; i += step)
    a.factors[i] = a.deviation / 2.93F * 32768.0F;
}

}  // namespace

void launch_fill_four_bit(const FillFourBitArgs& args, Stream stream) {
  launch(fill_four_bit_kernel, 132 * 8, 256, 0, stream, args);
}

void launch_fill(const FillArgs& args, Stream stream) { launch(fill_kernel, 132 * 8, 256, 0, stream, args); }

}  // namespace strata::cuda
