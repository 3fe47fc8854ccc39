// causal_conv: a thread per sequence and channel where runs are short; else outputs row by row, and states after them.
#include <type_traits>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/recurrence.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/recurrence.h"

namespace strata::cuda {
namespace {

constexpr int kShortRun = 16;  // rows one thread walks
constexpr int kAhead = 4;       // rows whose loads are under way at once
constexpr int kBlockRows = 32;  // rows of a thread in the row-by-row form: weights and a window are read once for 32 outputs

// The input m (1, 2, ..) before the first row of the run: from the tape's rows to replay, else from the state.
__device__ __forceinline__ float before(const ConvView& a, const Run& run, int c, int m, int taps) {
  if (m <= run.replay) return load(a.tape, run.tape, std::int64_t{run.replay - m} * a.channels + c);
  m -= run.replay;
  return run.state_in < 0 || m > taps ? 0.0F : load(a.state, run.state_in, c * taps + taps - m);
}

// A number as it lies in memory: what unpacks it must not stand between this load and the next.
__device__ __forceinline__ std::uint32_t load_raw(const Rows& r, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * r.stride + column;
  return r.elem == kElemBF16 ? static_cast<const std::uint16_t*>(r.data)[at] : static_cast<const std::uint32_t*>(r.data)[at];
}

template <int Taps>
struct Window {
  float v[Taps];  // oldest first
  __device__ __forceinline__ void push(float x) {
#pragma unroll
    for (int j = 0; j + 1 < Taps; ++j) v[j] = v[j + 1];
    v[Taps - 1] = x;
  }
};

template <int Taps>
struct Filter {
  float w[Taps + 1], bias;
  __device__ __forceinline__ Filter(const ConvView& a, int c) : bias(a.bias != nullptr ? a.bias[c] : 0.0F) {
#pragma unroll
    for (int j = 0; j <= Taps; ++j) w[j] = a.weight[c * (Taps + 1) + j];
  }
  __device__ __forceinline__ float operator()(const ConvView& a, const Window<Taps>& window, float x) const {
    float sum = bias;
#pragma unroll
    for (int j = 0; j < Taps; ++j) sum += w[j] * window.v[j];
    return activation_of(a.activation, sum + w[Taps] * x);
  }
};

// A thread per sequence and channel. Outputs: also computes the outputs.
template <int Taps, bool Outputs>
__global__ void __launch_bounds__(128) run_kernel(ConvView a) {
  const int c = blockIdx.x * 128 + threadIdx.x;
  Run run = start_of(a.batch, blockIdx.y);
  run.saves = a.batch.saves + 2 * saves_before_by_warp(a.batch, run.begin);
  const Filter<Taps> filter(a, min(c, a.channels - 1));
  begin_kernel();
  if (c >= a.channels) return;
  Window<Taps> window;
  if (a.state.elem == kElemF32 && a.tape.elem == kElemF32) {  // no load waits for another
#pragma unroll
    for (int j = 0; j < Taps; ++j) {
      const int back = Taps - j;
      const float* from = back <= run.replay ? static_cast<const float*>(a.tape.data) + run.tape * a.tape.stride +
                                                   std::int64_t{run.replay - back} * a.channels + c
                          : run.state_in < 0 ? nullptr
                                             : static_cast<const float*>(a.state.data) + run.state_in * a.state.stride + c * Taps + j + run.replay;
      window.v[j] = from == nullptr ? 0.0F : *from;
    }
  } else {
#pragma unroll
    for (int j = 0; j < Taps; ++j) window.v[j] = before(a, run, c, Taps - j, Taps);
  }
  const auto keep = [&](int slot) {
#pragma unroll
    for (int j = 0; j < Taps; ++j) store(a.state, slot, c * Taps + j, window.v[j]);
  };
  if (run.state_out >= 0) keep(run.state_out);
  const auto keep_input = [&](int row, float x) { store(a.tape, run.tape, std::int64_t{row - run.begin} * a.channels + c, x); };
  if constexpr (Outputs) {
    for (int first = run.begin; first < run.end; first += kAhead) {
      std::uint32_t raw[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (first + j < run.end) raw[j] = load_raw(a.x, first + j, c);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int row = first + j;
        if (row >= run.end) break;
        const float x = a.x.elem == kElemBF16 ? unpack(raw[j]).x : __uint_as_float(raw[j]);
        store(a.out, row, c, filter(a, window, x));
        window.push(x);
        run.save(row, keep);
        if (run.tape >= 0) keep_input(row, x);
      }
    }
  } else {
    const Window<Taps> past = window;
    while (run.saves != run.last_save && run.saves[0] < run.end) {
      const int row = run.saves[0];
#pragma unroll
      for (int j = 0; j < Taps; ++j) {
        const int from = row + 1 - Taps + j;
        window.v[j] = 0;
        if (from >= run.begin) {
          window.v[j] = load(a.x, from, c);
        } else {
#pragma unroll
          for (int i = 0; i < Taps; ++i) {
            if (i == Taps + from - run.begin) window.v[j] = past.v[i];
          }
        }
      }
      run.save(row, keep);
    }
  }
  if (!Outputs && run.tape >= 0) {
    for (int row = run.begin; row < run.end; ++row) keep_input(row, load(a.x, row, c));
  }
}

// A thread per kBlockRows rows and eight channels: outputs only. Wide: bf16 in and out, 16-byte accesses; rows stay as they were
// loaded until they are needed, so that several loads are under way at once.
template <int Taps, bool Wide>
__global__ void __launch_bounds__(128) rows_kernel(ConvView a) {
  begin_kernel();
  const int c = (blockIdx.x * 128 + threadIdx.x) * 8, n = min(8, a.channels - c);
  if (n <= 0) return;
  float w[Taps + 1][8], bias[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    bias[i] = a.bias != nullptr && i < n ? a.bias[c + i] : 0.0F;
    if constexpr (Wide && Taps == 3) {  // 16 bytes a channel
      const float4 q = *reinterpret_cast<const float4*>(a.weight + (c + i) * 4);
      w[0][i] = q.x, w[1][i] = q.y, w[2][i] = q.z, w[3][i] = q.w;
    } else {
#pragma unroll
      for (int j = 0; j <= Taps; ++j) w[j][i] = i < n ? a.weight[(c + i) * (Taps + 1) + j] : 0.0F;
    }
  }
  using Raw = std::conditional_t<Wide, uint4, Eight>;
  const auto fetch = [&](int row) -> Raw {
    if constexpr (Wide) {
      return *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.x.data) + row * a.x.stride + c);
    } else {
      return load8(a.x, row, c, n, a.wide);
    }
  };
  const auto unpacked = [](const Raw& raw) {
    if constexpr (Wide) {
      return unpack8(raw);
    } else {
      return raw;
    }
  };
  const int end = min(static_cast<int>(blockIdx.y + 1) * kBlockRows, a.batch.rows);
  for (int row = blockIdx.y * kBlockRows; row < end;) {  // a sequence's part at a time
    const Run run = run_of(a.batch, a.batch.sequence[row]);
    const int stop = min(end, run.end);
    Raw next[kAhead];
    const auto fetch_from = [&](int from) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (from + j < stop) next[j] = fetch(from + j);
      }
    };
    fetch_from(row);
    Eight x[Taps + kAhead];  // the rows before, oldest first, and those at hand
#pragma unroll
    for (int j = 0; j < Taps; ++j) {
      const int from = row - Taps + j;
      if (from >= run.begin) {
        x[j] = unpacked(fetch(from));
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[j].v[i] = i < n ? before(a, run, c + i, run.begin - from, Taps) : 0.0F;
      }
    }
    for (; row < stop; row += kAhead) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) x[Taps + j] = unpacked(next[j]);
      fetch_from(row + kAhead);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (row + j >= stop) break;
        Eight out;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float sum = bias[i];
#pragma unroll
          for (int m = 0; m <= Taps; ++m) sum += w[m][i] * x[j + m].v[i];
          out.v[i] = a.activation == 0 ? sum * sigmoid(sum) : sum;  // silu or none
        }
        store8(a.out, row + j, c, n, a.wide, out);
      }
#pragma unroll
      for (int j = 0; j < Taps; ++j) x[j] = x[j + kAhead];
    }
    row = stop;
  }
}

template <int Taps>
void start(const ConvView& a, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(a.channels, 128));
  const dim3 runs(blocks, static_cast<unsigned>(a.batch.sequences));
  if (a.batch.longest_run <= kShortRun) {
    launch(run_kernel<Taps, true>, runs, 128, 0, stream, a);
    return;
  }
  const bool wide = a.wide && a.x.elem == kElemBF16 && a.out.elem == kElemBF16;
  launch(wide ? rows_kernel<Taps, true> : rows_kernel<Taps, false>,
         dim3(static_cast<unsigned>(ceil_div(a.channels, 8 * 128)), static_cast<unsigned>(ceil_div(a.batch.rows, kBlockRows))), 128, 0,
         stream, a);
  launch(run_kernel<Taps, false>, runs, 128, 0, stream, a);
}

}  // namespace

void launch_causal_conv(const ConvView& args, Stream stream) {
  switch (args.taps) {
    case 1: return start<1>(args, stream);
    case 2: return start<2>(args, stream);
    case 3: return start<3>(args, stream);
    case 9: return start<9>(args, stream);  // four taps three rows apart, written out (n-gram embeddings)
    default: return start<4>(args, stream);
  }
}

}  // namespace strata::cuda
