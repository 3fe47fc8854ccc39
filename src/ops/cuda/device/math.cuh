// Scalar functions of the ops and reductions over a warp or block.
#pragma once

namespace strata::cuda {

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }
constexpr float kLog2E = 1.4426950408889634F;
// 2^x; below 2^-126 zero.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float softplus(float x) { return x > 20.0F ? x : log1pf(__expf(x)); }

// Numbered as strata::Activation.
__device__ __forceinline__ float activation_of(int activation, float x) {
  switch (activation) {
    case 0: return x * sigmoid(x);
    case 1: return 0.5F * x * (1.0F + tanhf(0.7978845608028654F * (x + 0.044715F * x * x * x)));
    case 2: return 0.5F * x * (1.0F + erff(x * 0.7071067811865476F));
    case 3: return x > 0 ? x * x : 0.0F;
    case 5: return sigmoid(x);
    default: return x;
  }
}
__device__ __forceinline__ float clamped_swiglu(float gate, float up, float limit) {
  const float g = fminf(gate, limit), u = fmaxf(fminf(up, limit), -limit);
  return g * sigmoid(1.702F * g) * (u + 1.0F);
}

__device__ __forceinline__ float glu_of(int activation, float gate, float up, float limit) {
  constexpr int kClampedSwiGlu = 4;
  return activation == kClampedSwiGlu ? clamped_swiglu(gate, up, limit) : activation_of(activation, gate) * up;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) x += __shfl_xor_sync(~0U, x, o);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) x = fmaxf(x, __shfl_xor_sync(~0U, x, o));
  return x;
}
// Every thread of the block (whole warps, at most 1024 threads) gets the sum; the same order every time.
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float parts[32];
  x = warp_sum(x);
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[warp] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < warps; ++i) sum += parts[i];
  return sum;
}

__device__ __forceinline__ float block_max(float x) {
  __shared__ float parts[32];
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) x = fmaxf(x, parts[i]);
  return x;
}

}  // namespace strata::cuda
