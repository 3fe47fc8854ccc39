// add_rms_norm and the product that takes it, for few rows, in one launch: every block normalises the
// rows for its own outputs, while its first weights are on their way.
#include "ops/cuda/device/norm_rows.cuh"
#include "ops/cuda/device/stream_product.cuh"

namespace strata::cuda {
namespace {

extern __shared__ __align__(16) std::uint8_t norm_shared[];

// The rows in shared memory, normalised, and after them as they are in the residual stream from now on; the
// block that has read them last writes them there when its own outputs are done.
template <int R>
struct NormedInput {
  const NormLinearArgs& a;
  const int column = static_cast<int>(threadIdx.x) * 8, pitch;
  Eight weight;
  unsigned place = 0;

  __device__ __forceinline__ NormedInput(const NormLinearArgs& args, bool f8)
      : a(args), pitch(staged_pitch(args.norm.columns, f8)), weight(norm_weight(args.norm, column)) {}
  __device__ __forceinline__ Rows sums(int r) const {
    return {norm_shared + R * pitch + (r * a.norm.columns + column) * 4, 0, kElemF32};
  }

  __device__ __forceinline__ Rows make() {
    NormRows<R> rows;
    rows.load(a.norm, column);
    if (threadIdx.x == 0) place = atomicAdd(a.arrived, 1);
    if (column < a.norm.columns) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const uint4 normed = rows.normed(r, weight);
        *reinterpret_cast<uint4*>(norm_shared + r * pitch + column * 2) = normed;
        store8(sums(r), 0, 0, 8, true, rows.x[r]);
        if (r < a.norm.rows && r % gridDim.x == blockIdx.x)
          *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.norm.out.data) + r * a.norm.out.stride +
                                    column) = normed;
      }
    }
    __syncthreads();
    return {norm_shared, pitch / 2, kElemBF16};
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
    stream.begin(0, block * First::kOutputs);
    NormedInput<R> input(a, E == kElemF8);
    begin_kernel();
    args.x = input.make();
    stream.run(0, block * First::kOutputs, blocks * First::kOutputs, 0, args.rows, parts);
    input.end();
  } else {
    LinearArgs args = a.below;
    Second stream(args);
    const int n0 = (block - blocks) * Second::kOutputs;
    stream.begin(0, n0);
    NormedInput<R> input(a, false);
    begin_kernel();
    args.x = input.make();
    stream.run(0, n0, stream.outputs, 0, args.rows, parts);
    input.end();
  }
}

constexpr int shared_bytes(int rows, int columns) { return rows * (staged_pitch(columns, false) + columns * 4); }

template <int R, int E>
void start(const NormLinearArgs& a, Stream stream) {
  static_assert(shared_bytes(R, kNormLinearColumns) <= 40 * 1024);  // beyond 48 KB it must be asked for
  const int second = tiles_of(a.below, 16);
  const int blocks = std::min(tiles_of(a.w, 16), std::max(1, a.w.processors * blocks_each(1, 1, E, 8) - second));
  launch(norm_linear_kernel<R, E>, static_cast<unsigned>(blocks + second), 256,
         static_cast<std::size_t>(shared_bytes(R, a.norm.columns)), stream, a, blocks);
}

template <int E>
void start_of_rows(const NormLinearArgs& a, Stream stream) {
  a.norm.rows == 1 ? start<1, E>(a, stream) : start<2, E>(a, stream);
}

}  // namespace

void launch_norm_linear(const NormLinearArgs& args, Stream stream) {
  args.w.w.data.elem == kElemF8 ? start_of_rows<kElemF8>(args, stream) : start_of_rows<kElemBF16>(args, stream);
}

}  // namespace strata::cuda
