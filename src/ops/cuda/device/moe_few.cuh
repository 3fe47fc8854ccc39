// Kernels of moe for few rows, after the choice: gate and up products with the GLU of every chosen expert and
// of the shared one in one launch, down products with the weighted sum in another. Weights are streamed as in
// stream_product.cuh. With f8 weights, x and hidden are in shared memory as f16 (half_rows.cuh).
#pragma once

#include <algorithm>

#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/half_rows.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/moe.h"

namespace strata::cuda {

constexpr int kInWarps = 8, kInOutputs = 8;  // a tile of 16: gate rows, then up rows of as many outputs
constexpr int kDownWarps = 12, kDownOutputs = 16;
constexpr int moe_blocks_each(int elem) { return elem == kElemBF16 ? 2 : 3; }  // of in_kernel on a processor
static_assert(kMoeRows == 8);                                                  // the columns of one product
constexpr int kMostStaged = 64 * 1024;  // bytes of activations in shared memory, bf16 as they are
static_assert(kMoeBlock == kHalfBlock);
constexpr int kMostHalf = 200 * 1024;  // the same of f16
constexpr int down_bytes(std::int64_t blocks) {
  return HalfRows::bytes(1, blocks * kHalfBlock) + static_cast<int>(blocks) * 64;
}
static_assert(HalfRows::bytes(kMoeRows, kMoeBlocks / kMoeRows * kHalfBlock) <= kMostHalf &&
              HalfRows::bytes(1, kHalfBlock* kMoeBlocks) <= kMostHalf && down_bytes(kMoeBlocks) <= kMostHalf);

extern __shared__ __align__(16) std::uint8_t moe_shared[];

// The blocks (., y) of entry y (of the shared expert: the first) serve all rows that chose its expert, if no
// earlier entry has the same; column r of a product is row r of x. A block goes through tiles of outputs,
// `staged`: with x in shared memory (f8: always).
template <int E>
__global__ void __launch_bounds__(kInWarps * 32, moe_blocks_each(E)) in_kernel(MoeView a, bool staged) {
  using C = StreamChunk<E>;
  constexpr int kTogether = E == kElemBF16 ? 4 : 2, kTurn = kInWarps * C::kInputs, kNobody = -1;
  constexpr bool kHalf = E == kElemF8;
  __shared__ float parts[kInWarps][kMoeRows][20];
  __shared__ int rows_out[kMoeRows];  // row of hidden that takes column r
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int k = a.route.k, entries = a.route.rows * k,
            entry = static_cast<int>(blockIdx.y) - (a.shared_in.outputs > 0 ? 1 : 0);
  const bool shared = entry < 0;
  const int outputs = static_cast<int>(shared ? a.shared_in.outputs : a.in.outputs) / 2,
            inputs = static_cast<int>(a.in.inputs);
  const int step = static_cast<int>(gridDim.x) * kInOutputs;
  int n0 = static_cast<int>(blockIdx.x) * kInOutputs, expert = 0;
  C chunk[kTogether][1];
  StreamRows<E> rows;
  const auto aim = [&] {
    const int gate = expert * 2 * outputs + min(n0 + g, outputs - 1);
    rows = StreamRows<E>(shared ? a.shared_in : a.in, gate, gate + outputs);
  };
  const auto load = [&](int c, int k0) {
    chunk[c][0].load(rows, k0 + c * kTurn + warp * C::kInputs, inputs);
  };
  const auto begin = [&] {
    aim();
#pragma unroll
    for (int c = 0; c < kTogether; ++c) load(c, 0);
  };
  if (shared) begin();  // depends on no earlier kernel
  if (warp == 0 && lane < kMoeRows) rows_out[lane] = shared && lane < a.route.rows ? lane : kNobody;
  __syncwarp();
  begin_kernel();
  if (n0 >= outputs) return;
  if (!shared) {
    expert = a.route.expert[entry];
    int chose[kMoeEntries / 32];
#pragma unroll
    for (int i = 0; i < kMoeEntries / 32; ++i)
      chose[i] = lane + 32 * i < entries ? a.route.expert[lane + 32 * i] : -1;
    int first = entry;
#pragma unroll
    for (int i = kMoeEntries / 32 - 1; i >= 0; --i) {
      const unsigned same = __ballot_sync(~0U, chose[i] == expert);
      if (same != 0) first = 32 * i + __ffs(static_cast<int>(same)) - 1;
      if (warp == 0 && chose[i] == expert) rows_out[(lane + 32 * i) / k] = lane + 32 * i;
    }
    if (first < entry) return;
    begin();
  }
  __syncthreads();
  const int pitch = staged_pitch(inputs, false);
  const HalfRows half(moe_shared, a.route.rows, inputs);
  const auto* all_x = static_cast<const __nv_bfloat16*>(a.x.data);
  if (kHalf || staged) {
    for (int r = 0; r < a.route.rows; ++r) {
      if (rows_out[r] == kNobody) continue;  // what its column adds up nobody reads
      const __nv_bfloat16* from = all_x + r * a.x.stride;
      if constexpr (kHalf) {
        for (int at = static_cast<int>(threadIdx.x) * 8; at < half.blocks * kHalfBlock;
             at += kInWarps * 32 * 8)
          half.put(r, at, load_x(from, at, inputs));
      } else {
        stage_row(moe_shared + r * pitch, from, inputs);
      }
    }
    __syncthreads();
  }
  const __nv_bfloat16* const x[1] = {rows_out[g] == kNobody ? nullptr
                                     : staged ? reinterpret_cast<const __nv_bfloat16*>(moe_shared + g * pitch)
                                              : all_x + g * a.x.stride};
  const float* bias = shared ? a.shared_in_bias : a.in_bias;
  while (n0 < outputs) {
    const int tile = n0;
    float sum[1][1][4] = {};
    for (int k0 = 0; k0 < inputs; k0 += kTogether * kTurn) {
      const bool last = k0 + kTogether * kTurn >= inputs;
      if (last) n0 += step;
      const bool more = n0 < outputs;
      if (last && more) aim();
#pragma unroll
      for (int c = 0; c < kTogether; ++c) {
        const int at = k0 + c * kTurn + warp * C::kInputs;
        if (at < inputs) {
          if constexpr (kHalf) {
            half.multiply(sum[0][0], chunk[c][0], at);
          } else {
            multiply(sum, chunk[c], x, at, inputs);
          }
        }
        if (more) load(c, last ? 0 : k0 + kTogether * kTurn);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) parts[warp][2 * t + j % 2][g + j / 2 * 8] = sum[0][0][j];
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < kMoeRows * kInOutputs; j += kInWarps * 32) {
      const int n = j % kInOutputs, r = j / kInOutputs, to = rows_out[r];
      if (to == kNobody || tile + n >= outputs) continue;
      const auto add_up = [&](int up) {
        const int row = (expert * 2 + up) * outputs + tile + n;
        const float first = bias == nullptr ? 0.0F : bias[row];
        float all = E == kElemFp4 ? 0.0F : first;
#pragma unroll
        for (int w = 0; w < kInWarps; ++w) all += parts[w][r][up * 8 + n];
        if constexpr (E == kElemFp4) return (shared ? a.shared_in : a.in).scales[row] * all + first;
        return all;
      };
      store(shared ? a.shared_hidden : a.hidden, to, tile + n,
            glu_of(a.activation, add_up(0), add_up(1), a.limit));
    }
    __syncthreads();
  }
}

// Block (tile of outputs, row): the row's k matrices and the shared one are one product over all their
// inputs, whose parts the routing weighs. The choice is the work of the kernel before the last, so that all
// weights are asked for before the wait.
template <int E>
__global__ void __launch_bounds__(kDownWarps * 32, 2) down_kernel(MoeView a, bool staged) {
  using C = StreamChunk<E>;
  constexpr int kTogether = 3;
  constexpr bool kHalf = E == kElemF8;
  __shared__ float parts[kDownWarps][kDownOutputs];
  __shared__ float weights[kMoeEntries + 1];  // of the k experts, and of the shared one
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row = blockIdx.y, n0 = static_cast<int>(blockIdx.x) * kDownOutputs,
            outputs = static_cast<int>(a.down.outputs);
  const int k = a.route.k, inputs = static_cast<int>(a.down.inputs),
            shared_inputs = static_cast<int>(a.shared_down.inputs);
  const int each = (inputs + C::kInputs - 1) / C::kInputs;  // chunks of a matrix
  const int routed = k * each, chunks = routed + (shared_inputs + C::kInputs - 1) / C::kInputs;
  const int above = min(n0 + g, outputs - 1), below = min(n0 + g + 8, outputs - 1);
  const int* experts = a.route.expert + row * k;
  C chunk[kTogether][1];
  const HalfRows half(moe_shared, 1, chunks * kHalfBlock);  // f8: a block for each chunk,
  float* const scales = half.undo(chunks);                  // and after them the scales of its 16 rows
  const auto expert_of = [&](int i) { return i < routed ? experts[i / each] : 0; };
  const auto load = [&](C& to, int i, int expert) {
    if (i >= chunks) return;
    const bool own = i < routed;
    const int base = expert * outputs, at = own ? i % each * C::kInputs : (i - routed) * C::kInputs,
              end = own ? inputs : shared_inputs;
    const StreamRows<E> rows(own ? a.down : a.shared_down, base + above, base + below);
    if constexpr (kHalf) {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int from = at + p % 2 * 64 + t * 16;
        to.w[p / 2][p % 2] = from < end ? stream_load(rows.w[p / 2] + from) : make_uint4(0, 0, 0, 0);
      }
      if (t < 2) copy_4(scales + i * 16 + t * 8 + g, (t == 0 ? rows.scale[0] : rows.scale[1]) + at / 128);
    } else {
      to.load(rows, at, end);
    }
    if constexpr (is_four_bit(E)) to.load_factor(rows);
  };
  int first_expert[kTogether];  // asked for together
#pragma unroll
  for (int c = 0; c < kTogether; ++c) first_expert[c] = expert_of(warp + c * kDownWarps);
#pragma unroll
  for (int c = 0; c < kTogether; ++c) load(chunk[c][0], warp + c * kDownWarps, first_expert[c]);
  for (int j = static_cast<int>(threadIdx.x); j <= k; j += kDownWarps * 32) {
    weights[j] = j < k ? a.route.weight[row * k + j]
                 : a.shared_gate.data == nullptr
                     ? 1.0F
                     : sigmoid(load_elem(a.shared_gate.data, a.shared_gate.elem, row * a.shared_gate.stride));
  }
  begin_kernel();
  const auto* hidden =
      static_cast<const __nv_bfloat16*>(a.hidden.data) + row * k * a.hidden.stride;  // contiguous
  const auto* shared_hidden =
      static_cast<const __nv_bfloat16*>(a.shared_hidden.data) + row * a.shared_hidden.stride;
  if constexpr (kHalf) {
    static_assert(C::kInputs == kHalfBlock);
    constexpr int kThreads = kDownWarps * 32, kAtOnce = 2;
    for (int first = static_cast<int>(threadIdx.x); first < chunks * 16; first += kAtOnce * kThreads) {
      uint4 piece[kAtOnce];
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const int unit = first + p * kThreads, j = min(unit / 16 / each, k),
                  at = (unit / 16 - j * each) * kHalfBlock + unit % 16 * 8;
        const bool own = j < k;
        piece[p] = load_x(own ? hidden + j * inputs : shared_hidden, at, own ? inputs : shared_inputs);
      }
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const int unit = first + p * kThreads;
        if (unit < chunks * 16) half.put(0, unit * 8, piece[p]);
      }
    }
  } else if (staged) {
    auto* to = reinterpret_cast<__nv_bfloat16*>(moe_shared);
    stage_row(moe_shared, hidden, k * inputs);
    stage_row(moe_shared + k * inputs * sizeof(*to), shared_hidden, shared_inputs);
    hidden = to;
    shared_hidden = to + k * inputs;
  }
  __syncthreads();
  float sum[1][1][4] = {};
  for (int i0 = warp; i0 < chunks; i0 += kTogether * kDownWarps) {
    if constexpr (kHalf) {
      wait_copies();  // by this warp for itself
      __syncwarp();
    }
#pragma unroll
    for (int c = 0; c < kTogether; ++c) {
      const int i = i0 + c * kDownWarps, j = min(i / each, k);
      if (i < chunks) {
        if constexpr (kHalf) {
          chunk[c][0].scale[0] = weights[j] * scales[i * 16 + g];
          chunk[c][0].scale[1] = weights[j] * scales[i * 16 + g + 8];
          half.multiply(sum[0][0], chunk[c][0], i * kHalfBlock);
        } else {
          const __nv_bfloat16* const x[1] = {g != 0 ? nullptr : j < k ? hidden + j * inputs : shared_hidden};
          multiply<1, 1, E, true>(sum, chunk[c], x, (i - j * each) * C::kInputs,
                                  j < k ? inputs : shared_inputs, weights[j]);
        }
      }
      const int next = i + kTogether * kDownWarps;
      if (next < chunks) load(chunk[c][0], next, expert_of(next));
    }
  }
  if (t == 0) {
    parts[warp][g] = sum[0][0][0];
    parts[warp][g + 8] = sum[0][0][2];
  }
  __syncthreads();
  const int n = n0 + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= kDownOutputs || n >= outputs) return;
  float all = a.shared_down_bias != nullptr ? weights[k] * a.shared_down_bias[n] : 0.0F;
  if (a.down_bias != nullptr) {
    for (int j = 0; j < k; ++j) all += weights[j] * a.down_bias[experts[j] * outputs + n];
  }
#pragma unroll
  for (int w = 0; w < kDownWarps; ++w) all += parts[w][threadIdx.x];
  store(a.out, row, n, all);
}

// With `bytes` of activations in shared memory, where these are no more than Most.
template <auto Kernel, int Most>
void launch_staged(dim3 grid, int threads, std::int64_t bytes, const MoeView& a, Stream stream) {
  allow_shared<Kernel, Most>();
  const bool staged = bytes <= Most;
  launch(Kernel, grid, static_cast<unsigned>(threads), staged ? static_cast<std::size_t>(bytes) : 0, stream,
         a, staged);
}

template <int E>
void start_moe(const MoeView& a, Stream stream) {
  constexpr bool kHalf = E == kElemF8;
  constexpr int kMost = kHalf ? kMostHalf : kMostStaged;
  const int entries = a.route.rows * a.route.k + (a.shared_in.outputs > 0 ? 1 : 0);
  const int tiles =
      static_cast<int>(ceil_div(std::max(a.in.outputs, a.shared_in.outputs) / 2, std::int64_t{kInOutputs}));
  const int slots = a.processors * moe_blocks_each(E),
            each = std::clamp(entries * tiles / (2 * slots), 1, 4);  // tiles of a block
  const std::int64_t hidden_blocks = moe_blocks(a.route.k, a.down.inputs, a.shared_down.inputs);
  launch_staged<in_kernel<E>, kMost>(
      dim3(static_cast<unsigned>(ceil_div(tiles, each)), static_cast<unsigned>(entries)), kInWarps * 32,
      kHalf ? HalfRows::bytes(a.route.rows, a.in.inputs)
            : a.route.rows * staged_pitch(static_cast<int>(a.in.inputs), false),
      a, stream);
  launch_staged<down_kernel<E>, kMost>(
      dim3(static_cast<unsigned>(ceil_div(a.down.outputs, std::int64_t{kDownOutputs})),
           static_cast<unsigned>(a.route.rows)),
      kDownWarps * 32,
      kHalf ? down_bytes(hidden_blocks) : 2 * (a.route.k * a.down.inputs + a.shared_down.inputs), a, stream);
}

}  // namespace strata::cuda
