// Launches of linear and expert_linear: products of rows with a matrix, or with the matrices of their experts.
#pragma once

#include "ops/cuda/norm.h"

namespace strata::cuda {

constexpr std::int64_t kStreamRows = 16;  // at most for launch_linear_stream()

// A GLU of the product: w holds `outputs` gate rows, then as many up rows; out [., outputs] = activation(gate) * up.
struct GluArgs {
  std::int64_t outputs = 0;  // 0 = none
  int activation = 0;
  float limit = 0;
};

// out[i, n] = sum_k x[i, k] w[n, k] + bias[n]. With `order` (experts): entry i of expert e, order[first[e] <= i < first[e+1]],
// reads row order[i] / divisor of x and writes row order[i] of out, with the expert's rows of w and bias.
struct LinearArgs {
  Rows out, x;
  WeightView w;
  const float* bias = nullptr;
  std::int64_t rows = 0;  // of out
  const int* order = nullptr;
  const int* first = nullptr;
  int divisor = 1;
  int longest = 0;     // most entries an expert can have
  int processors = 132;
  int planes = 0;      // of an f8 x, see QuantiseArgs
  Rows x_planes;       // of all rows of x; null = not made yet
  const float* x_scales = nullptr;
  int split = 1;       // blocks that share a tile's inputs (launch_linear_tiles decides)
  GluArgs glu;
};

// Any element types, any sizes, no GLU: the plain form.
void launch_linear_plain(const LinearArgs& args, Stream stream);
// bf16 `wide` x, bf16, f8 or 4-bit weights: weights streamed once through the tensor cores, for at most 16 rows.
void launch_linear_stream(const LinearArgs& args, Stream stream);
// An f8 or 4-bit and a bf16 matrix with at most 16 rows of the same `wide` x, no GLU, in one launch.
void launch_linear_pair(const LinearArgs& narrow, const LinearArgs& bf16, Stream stream);
// What the two call for 4-bit weights.
void launch_linear_stream_four_bit(const LinearArgs& args, Stream stream);
void launch_linear_pair_four_bit(const LinearArgs& narrow, const LinearArgs& bf16, Stream stream);
// add_rms_norm in the product that takes it: every block normalises the rows, which it keeps in shared memory.
constexpr int kNormLinearRows = 2, kNormLinearColumns = 2048;  // at most
struct NormLinearArgs {
  NormArgs norm;      // x f32, delta and out bf16, `wide`
  LinearArgs w;       // bf16 or f8, of the norm's out, no GLU
  LinearArgs below;   // bf16 outputs of the same rows under those of an f8 w; or w.outputs 0
  unsigned* arrived = nullptr;  // zero before and after
};
void launch_norm_linear(const NormLinearArgs& args, Stream stream);
// For many rows: bf16 weights, `wide` bf16 x; or f8 weights, x in planes.
void launch_linear_tiles(const LinearArgs& args, Stream stream);
void launch_linear_tiles_f8(const LinearArgs& args, Stream stream);
// 4-bit weights, x as launch_reorder_rows() leaves it.
void launch_linear_tiles_int4(const LinearArgs& args, Stream stream);
void launch_linear_tiles_int4_min(const LinearArgs& args, Stream stream);
void launch_linear_tiles_fp4(const LinearArgs& args, Stream stream);

// Rows of bf16 in the order that tiles of 4-bit weights take: of each 32 columns, pairs 0, 4, 8, 12, 1, 5, .. (a 4 x 4 transposition),
// zeros up to a multiple of 128.
struct ReorderArgs {
  Rows x, out;  // bf16, allow 16-byte accesses; out.stride: the columns with zeros
  std::int64_t rows = 0;
  int columns = 0;  // a multiple of 8
};
void launch_reorder_rows(const ReorderArgs& args, Stream stream);

// Rows of bf16 as one or two f8 planes and a scale for each row: x ~ scale * (plane 0 + plane 1). A row of `planes`: for each 128
// columns those of one plane, then of the other, in the order of f8 weights (f8_weight_place); zeros up to `padded`.
struct QuantiseArgs {
  Rows x;  // allows 16-byte accesses
  std::int64_t rows = 0;
  int columns = 0, padded = 0, count = 2;  // padded: columns up to a multiple of 128; count: planes
  std::uint8_t* planes = nullptr;          // [rows, count * padded]
  float* scales = nullptr;                 // [rows]
};
void launch_quantise_rows(const QuantiseArgs& args, Stream stream);

}  // namespace strata::cuda
