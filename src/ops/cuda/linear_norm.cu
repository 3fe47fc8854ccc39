// add_rms_norm and the product that takes it, for few rows, in one launch: every block normalises the
// rows for its own outputs, while its first weights are on their way.
#include "ops/cuda/device/norm_rows.cuh"
#include "ops/cuda/device/stream_product.cuh"

namespace strata::cuda {
namespace {

extern __shared__ __align__(16) std::uint8_t norm_shared[];

constexpr int rows_bytes(int rows, int columns, bool half) {
  return half ? HalfRows::bytes(rows, columns) : rows * staged_pitch(columns, false);
}

// The rows in shared memory, normalised, as f16 (Half) or bf16, and after them as they are in the residual
// stream from now on; the block that has read them last writes them there when its own outputs are done.
template <int R, bool Half>
struct NormedInput {
  const NormLinearArgs& a;
  const int column = static_cast<int>(threadIdx.x) * 8, pitch;
  const HalfRows half;
  Eight weight;
  unsigned place = 0;

  __device__ __forceinline__ explicit NormedInput(const NormLinearArgs& args)
      : a(args),
        pitch(staged_pitch(args.norm.columns, false)),
        half(norm_shared, R, args.norm.columns),
        weight(norm_weight(args.norm, column)) {}
  __device__ __forceinline__ Rows sums(int r) const {
    return {norm_shared + rows_bytes(R, a.norm.columns, Half) + (r * a.norm.columns + column) * 4, 0,
            kElemF32};
  }
  __device__ __forceinline__ Rows bf16() const { return {norm_shared, pitch / 2, kElemBF16}; }

  __device__ __forceinline__ void make() {
    NormRows<R> rows;
    rows.load(a.norm, column);
    if (threadIdx.x == 0) place = atomicAdd(a.arrived, 1);
    const bool live = column < a.norm.columns;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const uint4 normed = live ? rows.normed(r, weight) : make_uint4(0, 0, 0, 0);
      if (live) {
        store8(sums(r), 0, 0, 8, true, rows.x[r]);
        if (r < a.norm.rows && r % gridDim.x == blockIdx.x)
          *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.norm.out.data) + r * a.norm.out.stride +
                                    column) = normed;
      }
      if constexpr (Half) {
        if (column < half.blocks * kHalfBlock) half.put(r, column, normed);
      } else {
        if (live) *reinterpret_cast<uint4*>(norm_shared + r * pitch + column * 2) = normed;
      }
    }
    __syncthreads();
  }
  __device__ __forceinline__ void end() const {
    __shared__ bool last;
    if (threadIdx.x == 0) {
      last = place == gridDim.x - 1;
      if (last) *a.arrived = 0;
    }
    __syncthreads();
    if (!last || a.norm.delta.data == nullptr || column >= a.norm.columns) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r < a.norm.rows) store8(a.norm.x, r, column, 8, true, load8(sums(r), 0, 0, 8, true));
    }
  }
};

// As pair_kernel; without `below` all blocks are those of w.
template <int R, int E>
__global__ void __launch_bounds__(256, blocks_each(1, 1, E, 8))
    norm_linear_kernel(NormLinearArgs a, int blocks) {
  using First = StreamProduct<1, 1, E, false, 8>;
  using Second = StreamProduct<1, 1, kElemBF16, false, 8, 2>;
  __shared__ typename First::Parts parts;
  static_assert(sizeof(parts) == sizeof(typename Second::Parts));
  const int block = static_cast<int>(blockIdx.x);
  if (E == kElemBF16 || block < blocks) {
    LinearArgs args = a.w;
    First stream(args);
    const int n0 = block * First::kOutputs, step = blocks * First::kOutputs;
    stream.begin(0, n0);
    NormedInput<R, E == kElemF8> input(a);
    begin_kernel();
    input.make();
    if constexpr (E == kElemF8) {
      stream.run(n0, step, input.half, parts);
    } else {
      args.x = input.bf16();
      stream.run(0, n0, step, 0, args.rows, parts);
    }
    input.end();
  } else {
    LinearArgs args = a.below;
    Second stream(args);
    const int n0 = (block - blocks) * Second::kOutputs;
    stream.begin(0, n0);
    NormedInput<R, false> input(a);
    begin_kernel();
    input.make();
    args.x = input.bf16();
    stream.run(0, n0, stream.outputs, 0, args.rows, parts);
    input.end();
  }
}

constexpr int shared_bytes(int rows, int columns, bool half) {
  return std::max(rows_bytes(rows, columns, false), rows_bytes(rows, columns, half)) + rows * columns * 4;
}

template <int R, int E>
void start(const NormLinearArgs& a, Stream stream) {
  static_assert(shared_bytes(R, kNormLinearColumns, E == kElemF8) <=
                40 * 1024);  // beyond 48 KB it must be asked for
  const int second = tiles_of(a.below, 16);
  const int blocks =
      std::min(tiles_of(a.w, 16), std::max(1, a.w.processors * blocks_each(1, 1, E, 8) - second));
  launch(norm_linear_kernel<R, E>, static_cast<unsigned>(blocks + second), 256,
         static_cast<std::size_t>(shared_bytes(R, a.norm.columns, E == kElemF8)), stream, a, blocks);
}

template <int E>
void start_of_rows(const NormLinearArgs& a, Stream stream) {
  a.norm.rows == 1 ? start<1, E>(a, stream) : start<2, E>(a, stream);
}

}  // namespace

void launch_norm_linear(const NormLinearArgs& args, Stream stream) {
  args.w.w.data.elem == kElemF8 ? start_of_rows<kElemF8>(args, stream)
                                : start_of_rows<kElemBF16>(args, stream);
}

}  // namespace strata::cuda
