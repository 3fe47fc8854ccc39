// delta_net for decode and verify: convolution, norms of q and k, gates, delta rule and gated norm in one
// kernel, with one read and one write of each state.
//
// A block owns 16 value columns a warp of one value head of one sequence; the blocks that share a key head
// (its value heads, cut in pieces where there are few) are a cluster. Each convolves the q and k of that head
// for itself, the same numbers.
//
// The pools are changed in place: a sequence's slots and tapes may be read and written by one step. Nothing
// else in the step touches them, but the blocks of a cluster share the channels of q and k. So all that is
// read of slots and tapes is read first, window and replayed rows included; the cluster meets; and only then
// does anyone write. A channel of q or k is written by the block whose turn it is, one of v and the state's
// columns by their own block. Slots, tapes and the batch were written at least two kernels ago
// (device/launch.cuh; the input product lies between), so that first part does not wait for the kernel
// before, and the meeting is hidden behind it.
#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/delta_step.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

constexpr int kTaps = 3;
constexpr int kShared = 2 * kKeys;  // channels that a cluster shares: q | k

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// *to of block `rank` of the cluster = x
__device__ __forceinline__ void store_remote(float* to, int rank, float x) {
  asm volatile(
      "{\n.reg .u32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nst.shared::cluster.f32 [at], %2;\n}" ::"r"(
          shared_address(to)),
      "r"(rank), "f"(x)
      : "memory");
}

// Eight neighbouring activations as they lie in memory, aligned.
template <bool BF16>
struct Raw8 {
  uint4 q[BF16 ? 1 : 2];

  __device__ __forceinline__ void load(const Rows& r, std::int64_t row, std::int64_t column) {
    const auto* from = static_cast<const std::uint8_t*>(r.data) + (row * r.stride + column) * (BF16 ? 2 : 4);
    q[0] = reinterpret_cast<const uint4*>(from)[0];
    if constexpr (!BF16) q[1] = reinterpret_cast<const uint4*>(from)[1];
  }
  __device__ __forceinline__ Eight unpacked() const {
    if constexpr (BF16) {
      return unpack8(q[0]);
    } else {
      return {{__uint_as_float(q[0].x), __uint_as_float(q[0].y), __uint_as_float(q[0].z),
               __uint_as_float(q[0].w), __uint_as_float(q[1].x), __uint_as_float(q[1].y),
               __uint_as_float(q[1].z), __uint_as_float(q[1].w)}};
    }
  }
};

// What an activation holds of x.
template <bool BF16>
__device__ __forceinline__ float rounded(float x) {
  return BF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}
__device__ __forceinline__ Eight get8(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ void put8(float* to, const Eight& x) {
  reinterpret_cast<float4*>(to)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}
__device__ __forceinline__ float* slot_of(const Rows& pool, int slot) {
  return static_cast<float*>(pool.data) + slot * pool.stride;
}

// A block's channels are q | k | its columns of v.
template <int Warps>
struct Block {
  static constexpr int kValues = kColumns * Warps, kChannels = kShared + kValues, kThreads = 32 * Warps;
  Prepared prepared;
  alignas(16) float value[kPreparedRows][kValues];
  alignas(16) float window[kTaps][kChannels];  // inputs before the step's first row, oldest first
  alignas(16) float weight[kTaps + 1][kChannels];
  alignas(16) float out[kStepRows][8 * kColumns];  // of the whole head, rows piece, piece + pieces, ..
  float norm[8 * kColumns];
};

template <int Warps, bool BF16>
__global__ void __launch_bounds__(32 * Warps, Warps == 2 ? 4 : 16 / Warps) delta_net_kernel(DeltaNetView a) {
  using B = Block<Warps>;
  __shared__ B block;
  const ConvView& conv = a.conv;
  const GatedDeltaView& delta = a.delta;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, kk = lane / 4, vv = lane % 4;
  const int V = delta.value_dim, heads = delta.heads, channels = conv.channels,
            tape_row = channels + 2 * heads;
  const int pieces = V / B::kValues, group = heads / delta.key_heads, size = group * pieces;
  const int rank = static_cast<int>(blockIdx.x) % size, key_head = static_cast<int>(blockIdx.x) / size,
            piece = rank % pieces, h = key_head * group + rank / pieces;
  const int first_value = h * V + piece * B::kValues, column = warp * kColumns + vv * 4;
  const auto channel_of = [&](int c) {  // of the block's channel c
    return c < kKeys     ? key_head * kKeys + c
           : c < kShared ? (delta.key_heads + key_head - 1) * kKeys + c
                         : 2 * delta.key_heads * kKeys + first_value + c - kShared;
  };
  const auto owns = [&](int c) { return c >= kShared || c / 8 % size == rank; };

  Run run = start_of(delta.batch, blockIdx.y);
  const int rows = run.end - run.begin, total = run.replay + rows;
  float* const conv_tape = run.tape < 0 ? nullptr : slot_of(conv.tape, run.tape);
  float* const delta_tape = run.tape < 0 ? nullptr : slot_of(delta.tape, run.tape);

  const auto place = [&](int slot) {
    return slot_of(delta.state, slot) + (std::int64_t{h} * kKeys + kk) * V + piece * B::kValues + column;
  };
  float4 state[16];
  if (run.state_in >= 0) {
    const float* from = place(run.state_in);
#pragma unroll
    for (int i = 0; i < 16; ++i) state[i] = __ldcs(reinterpret_cast<const float4*>(from + i * 8 * V));
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) state[i] = make_float4(0, 0, 0, 0);
  }
  const auto keep = [&](int slot) {
    float* to = place(slot);
#pragma unroll
    for (int i = 0; i < 16; ++i) __stcs(reinterpret_cast<float4*>(to + i * 8 * V), state[i]);
  };

  {  // weights and window of the convolution; all loads are under way before the first is waited for
    constexpr int kEach = (B::kChannels + B::kThreads - 1) / B::kThreads;
    float4 weight[kEach];
    float past[kEach][kTaps];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int c = thread + e * B::kThreads;
      if (c >= B::kChannels) continue;
      const int channel = channel_of(c);
      weight[e] = __ldg(reinterpret_cast<const float4*>(conv.weight) + channel);
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        const int back = kTaps - t;  // rows before the first
        const float* from =
            back <= run.replay ? conv_tape + std::int64_t{run.replay - back} * channels + channel
            : run.state_in < 0 ? nullptr
                               : slot_of(conv.state, run.state_in) + channel * kTaps + t + run.replay;
        past[e][t] = from == nullptr ? 0.0F : *from;
      }
    }
    run.saves = delta.batch.saves + 2 * saves_before_by_warp(delta.batch, run.begin);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int c = thread + e * B::kThreads;
      if (c >= B::kChannels) continue;
      block.weight[0][c] = weight[e].x, block.weight[1][c] = weight[e].y;
      block.weight[2][c] = weight[e].z, block.weight[3][c] = weight[e].w;
#pragma unroll
      for (int t = 0; t < kTaps; ++t) block.window[t][c] = past[e][t];
    }
    for (int c = thread; c < V; c += B::kThreads) block.norm[c] = a.weight[c];
  }
  const float rate = expf(delta.a_log[h]), dt_bias = delta.dt_bias[h];

  // Channels c .. c + 7 of row i of the replayed and new rows, after the convolution. Of a new row, what
  // tapes and slots keep of inputs and result is written on the way.
  const auto take = [&](int i, int c) -> Eight {
    const int channel = channel_of(c), n = i - run.replay, row = run.begin + n;
    if (n < 0) return get8(delta_tape + std::int64_t{i} * tape_row + channel);
    Raw8<BF16> raw[kTaps + 1];
#pragma unroll
    for (int j = 0; j <= kTaps; ++j) {
      if (n + j >= kTaps) raw[j].load(conv.x, row + j - kTaps, channel);
    }
    const auto input = [&](int j) {
      return n + j >= kTaps ? raw[j].unpacked() : get8(&block.window[n + j][c]);
    };
    Eight sum{};
#pragma unroll
    for (int j = 0; j <= kTaps; ++j) {
      const Eight x = input(j), w = get8(&block.weight[j][c]);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum.v[e] += w.v[e] * x.v[e];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e)
      sum.v[e] =
          rounded<BF16>(conv.activation == 0 ? sum.v[e] * sigmoid(sum.v[e]) : sum.v[e]);  // silu or none
    if (!owns(c)) return sum;
    if (run.tape >= 0) {
      put8(conv_tape + std::int64_t{n} * channels + channel, raw[kTaps].unpacked());
      put8(delta_tape + std::int64_t{n} * tape_row + channel, sum);
    }
    for (const int* save = run.saves; save != run.last_save && save[0] <= row; save += 2) {
      if (save[0] < row) continue;
      float* to = slot_of(conv.state, save[1]) + channel * kTaps;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        const Eight x = input(j + 1);
#pragma unroll
        for (int e = 0; e < 8; ++e) to[e * kTaps + j] = x.v[e];
      }
    }
    return sum;
  };
  // A warp prepares row i as row r of the group; lanes 0 .. 15 hold q, 16 .. 31 k.
  const auto prepare = [&](int i, int r) {
    const int n = i - run.replay;
    float gates[2];  // a, b
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const Rows& from = j == 0 ? delta.a : delta.b;
      if (n < 0) {
        gates[j] = delta_tape[std::int64_t{i} * tape_row + channels + j * heads + h];
      } else {
        gates[j] = load_elem(from.data, BF16 ? kElemBF16 : kElemF32, (run.begin + n) * from.stride + h);
      }
    }
    prepare_row(block.prepared, r, take(i, lane * 8), gates[0], gates[1], rate, dt_bias);
    if (n >= 0 && run.tape >= 0 && piece == 0 && lane == 0) {
      float* kept = delta_tape + std::int64_t{n} * tape_row + channels + h;
      kept[0] = gates[0], kept[heads] = gates[1];
    }
  };

  // The gated norm of row `norm_row` is the work of V / 8 lanes of this block, if it is a row.
  const int lanes = V / 8, norm_row = thread / lanes * pieces + piece, norm_column = thread % lanes * 8;
  const bool normalises = norm_row < rows;
  Raw8<BF16> gate;

  for (int i = 0;;) {
    if (i == run.replay) {  // once: from here on this step's rows, and writing
      cluster_arrive();
      begin_kernel();
      cluster_wait();
      if (normalises) gate.load(a.gate, run.begin + norm_row, h * V + norm_column);
      if (run.state_out >= 0) {
        keep(run.state_out);
        for (int c = thread; c < B::kChannels; c += B::kThreads) {
          if (!owns(c)) continue;
          float* to = slot_of(conv.state, run.state_out) + channel_of(c) * kTaps;
#pragma unroll
          for (int t = 0; t < kTaps; ++t) to[t] = block.window[t][c];
        }
      }
    }
    if (i == total) break;
    const int count = min(kPreparedRows, (i < run.replay ? run.replay : total) - i);
    constexpr int kOctets = B::kValues / 8;
    const int tasks = count + ceil_div(count * kOctets, 32);
    for (int task = warp; task < tasks; task += Warps) {
      if (task < count) {
        prepare(i + task, task);
      } else {
        const int at = (task - count) * 32 + lane, r = at / kOctets, c = at % kOctets * 8;
        if (r < count) put8(&block.value[r][c], take(i + r, kShared + c));
      }
    }
    __syncthreads();
    for (int r = 0; r < count; ++r) {
      const int n = i + r - run.replay;
      const float out =
          rounded<BF16>(advance(state, block.prepared, r, block.value[r][column + kk % 4], kk, vv));
      if (n < 0) continue;
      if (kk >= 4) {
        float* to = &block.out[n / pieces][piece * B::kValues + column + kk - 4];
        if (pieces == 1) {
          *to = out;
        } else {
          store_remote(to, rank - piece + n % pieces, out);
        }
      }
      run.save(run.begin + n, keep);
    }
    i += count;
    __syncthreads();
  }

  if (pieces > 1) {
    cluster_arrive();
    cluster_wait();
  }
  Eight x{};
  if (normalises) x = get8(&block.out[norm_row / pieces][norm_column]);
  float sum = 0;
#pragma unroll
  for (int e = 0; e < 8; ++e) sum += x.v[e] * x.v[e];
  for (int o = lanes / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(~0U, sum, o);
  if (!normalises) return;
  const float factor = rsqrtf(sum / static_cast<float>(V) + a.eps);
  const Eight g = gate.unpacked();
#pragma unroll
  for (int e = 0; e < 8; ++e)
    x.v[e] *= factor * block.norm[norm_column + e] * activation_of(a.activation, g.v[e]);
  store8(a.out, run.begin + norm_row, h * V + norm_column, 8, true, x);
}

template <int Warps>
void start(const DeltaNetView& a, Stream stream) {
  const int pieces = a.delta.value_dim / (kColumns * Warps), group = a.delta.heads / a.delta.key_heads;
  launch_clusters(
      a.conv.x.elem == kElemBF16 ? delta_net_kernel<Warps, true> : delta_net_kernel<Warps, false>,
      dim3(static_cast<unsigned>(a.delta.heads * pieces), static_cast<unsigned>(a.delta.batch.sequences)),
      static_cast<unsigned>(group * pieces), Warps * 32, 0, stream, a);
}

}  // namespace

void launch_delta_net(const DeltaNetView& args, Stream stream) {
  // A head in pieces where whole ones leave some of 132 processors without a block.
  const int group = args.delta.heads / args.delta.key_heads,
            heads = args.delta.heads * args.delta.batch.sequences;
  int warps = args.delta.value_dim / kColumns, pieces = 1;
  while (warps > 2 && group * pieces * 2 <= kMostCluster && heads * pieces * 2 <= 132)
    warps /= 2, pieces *= 2;
  switch (warps) {
    case 2:
      return start<2>(args, stream);
    case 4:
      return start<4>(args, stream);
    default:
      return start<8>(args, stream);
  }
}

}  // namespace strata::cuda
