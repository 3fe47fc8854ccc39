// One row of the gated delta rule on a state in registers, key_dim 128. A warp owns 16 value columns: lane =
// 4 kk + vv holds keys kk, kk + 8, .. of columns 4 vv .. 4 vv + 3. With u = S^T k and w = S^T q of the state
// before the row,
//   d = beta (v - e^g u),  o = e^g w + (k . q) d,  S <- e^g S + k d^T
// needs one pass over the state and one reduction for both sums.
#pragma once

#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/rows.cuh"

namespace strata::cuda {

constexpr int kKeys = 128;
constexpr int kColumns = 16;      // value columns of a warp
constexpr int kPreparedRows = 8;  // rows prepared together
constexpr int kKeyPitch =
    20;  // keys kk, kk + 8, .. side by side; eight lanes' reads of 16 bytes meet no bank twice

struct Prepared {
  alignas(16) float k[kPreparedRows][8 * kKeyPitch];  // normalised, key kk + 8 i at key_place(kk + 8 i)
  alignas(16) float q[kPreparedRows][8 * kKeyPitch];  // and divided by sqrt(K)
  float kq[kPreparedRows], decay[kPreparedRows], beta[kPreparedRows];
};
__device__ __forceinline__ int key_place(int key) { return key % 8 * kKeyPitch + key / 8; }

constexpr float kQueryScale = 0.08838834764831845F;  // 1 / sqrt(128)

// A warp makes row r of `to`. x: eight channels of q (lanes 0 .. 15) or k (lanes 16 .. 31) after the convolution;
// a, b: the head's gates; rate: e^a_log.
__device__ __forceinline__ void prepare_row(Prepared& to, int r, const Eight& x, float a, float b, float rate,
                                            float dt_bias) {
  const int lane = threadIdx.x % 32;
  float squares[2] = {}, products[2] = {};
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float other = __shfl_xor_sync(~0U, x.v[e], 16);
    squares[e / 4] += x.v[e] * x.v[e];
    products[e / 4] += x.v[e] * other;
  }
#pragma unroll
  for (int o = 8; o > 0; o >>= 1) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      squares[j] += __shfl_xor_sync(~0U, squares[j], o);
      products[j] += __shfl_xor_sync(~0U, products[j], o);
    }
  }
  const bool query = lane < 16;
  const float scale = rsqrtf(squares[0] + squares[1] + 1e-6F) * (query ? kQueryScale : 1.0F);
  const float other_scale = __shfl_xor_sync(~0U, scale, 16);
  float* at = query ? to.q[r] : to.k[r];
#pragma unroll
  for (int e = 0; e < 8; ++e) at[key_place(lane % 16 * 8 + e)] = x.v[e] * scale;
  if (lane != 0) return;
  to.kq[r] = (products[0] + products[1]) * scale * other_scale;
  to.decay[r] = expf(-rate * softplus(a + dt_bias));
  to.beta[r] = sigmoid(b);
}

// Sums each of eight values over the eight lanes of a column group; lane kk keeps the sum of value kk.
__device__ __forceinline__ float reduce_scatter(const float (&x)[8], int kk) {
  float y[4], z[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float give = kk & 4 ? x[i] : x[i + 4], keep = kk & 4 ? x[i + 4] : x[i];
    y[i] = keep + __shfl_xor_sync(~0U, give, 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float give = kk & 2 ? y[i] : y[i + 2], keep = kk & 2 ? y[i + 2] : y[i];
    z[i] = keep + __shfl_xor_sync(~0U, give, 8);
  }
  const float give = kk & 1 ? z[0] : z[1], keep = kk & 1 ? z[1] : z[0];
  return keep + __shfl_xor_sync(~0U, give, 4);
}

// Row r of `p` on the state. `value`: v of column kk % 4 of the lane's four. Returns o of column kk - 4 where
// kk >= 4.
__device__ __forceinline__ float advance(float4 (&state)[16], const Prepared& p, int r, float value, int kk,
                                         int vv) {
  float sums[8] = {};
  float k[16];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float4 k4 = *reinterpret_cast<const float4*>(&p.k[r][kk * kKeyPitch + j * 4]);
    const float4 q4 = *reinterpret_cast<const float4*>(&p.q[r][kk * kKeyPitch + j * 4]);
    const float q[4] = {q4.x, q4.y, q4.z, q4.w};
    k[j * 4] = k4.x, k[j * 4 + 1] = k4.y, k[j * 4 + 2] = k4.z, k[j * 4 + 3] = k4.w;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float4& s = state[j * 4 + e];
      sums[0] += s.x * k[j * 4 + e];
      sums[1] += s.y * k[j * 4 + e];
      sums[2] += s.z * k[j * 4 + e];
      sums[3] += s.w * k[j * 4 + e];
      sums[4] += s.x * q[e];
      sums[5] += s.y * q[e];
      sums[6] += s.z * q[e];
      sums[7] += s.w * q[e];
    }
  }
  const float decay = p.decay[r];
  const float mine = decay * reduce_scatter(sums, kk);
  const float d = p.beta[r] * (value - mine);  // meant where kk < 4
  const float d0 = __shfl_sync(~0U, d, vv), d1 = __shfl_sync(~0U, d, 4 + vv),
              d2 = __shfl_sync(~0U, d, 8 + vv), d3 = __shfl_sync(~0U, d, 12 + vv);
  const float out = mine + p.kq[r] * (kk == 4 ? d0 : kk == 5 ? d1 : kk == 6 ? d2 : d3);
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    state[j].x = state[j].x * decay + k[j] * d0;
    state[j].y = state[j].y * decay + k[j] * d1;
    state[j].z = state[j].z * decay + k[j] * d2;
    state[j].w = state[j].w * decay + k[j] * d3;
  }
  return out;
}

}  // namespace strata::cuda
