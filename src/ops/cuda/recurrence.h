// Launches of causal_conv, gated_delta, delta_net and ssd.
#pragma once

#include <cstddef>

#include "ops/cuda/views.h"

namespace strata::cuda {

constexpr int kRowsPerTape = 16;  // kTapeRows of ops/batch.h

struct ConvView {
  Rows out, x;                   // [T, channels]
  const float* weight = nullptr; // [channels, taps + 1]
  const float* bias = nullptr;   // [channels] or null
  int channels = 0, taps = 0, activation = 0;
  bool wide = false;             // x and out allow 16-byte accesses
  Rows state;                    // [slots, channels * taps]
  Rows tape;                     // [tapes, kRowsPerTape * channels] or null
  BatchView batch;
};
void launch_causal_conv(const ConvView& args, Stream stream);  // taps 1..4 or 9

struct GatedDeltaView {
  Rows out, qkv, a, b;           // [T, heads * V], [T, 2 key_heads K + heads V], [T, heads]
  const float *a_log = nullptr, *dt_bias = nullptr;  // [heads]
  int key_heads = 0, heads = 0, key_dim = 0, value_dim = 0;
  Rows state;                    // [slots, heads * K * V] f32
  Rows tape;                     // [tapes, kRowsPerTape * (qkv row | a | b)] or null
  bool wide = false, tape_wide = false;  // eight channels of qkv, of the tape's rows allow 16-byte accesses
  BatchView batch;
};
void launch_gated_delta_plain(const GatedDeltaView& args, Stream stream);  // any sizes
// key_dim 128, value_dim a multiple of 16; only runs of at most `most_rows`. Reads states before it waits for the kernel
// before, which must not write them.
void launch_gated_delta_step(const GatedDeltaView& args, int most_rows, Stream stream);
// key_dim = value_dim = 128, bf16 activations with aligned rows; only runs of more than kStepRows. Scratch of
// gated_delta_chunk_bytes().
constexpr int kStepRows = 16;
std::size_t gated_delta_chunk_bytes(const GatedDeltaView& args);
void launch_gated_delta_chunk(const GatedDeltaView& args, void* scratch, Stream stream);

// Convolution, delta rule and gated norm of runs of at most kStepRows rows: three taps without bias, key_dim 128, value_dim
// 32, 64 or 128, at most kMostCluster value heads a key head, f32 pools; activations of one type with aligned rows. conv.out,
// delta.qkv and delta.out are not touched.
constexpr int kMostCluster = 8;  // blocks, on any GPU
struct DeltaNetView {
  ConvView conv;
  GatedDeltaView delta;
  Rows gate, out;                // [T, heads * V]
  const float* weight = nullptr; // [V]
  float eps = 0;
  int activation = 0;            // of the gate
};
void launch_delta_net(const DeltaNetView& args, Stream stream);

struct SsdView {
  Rows out, xbc, dt;             // [T, heads * P], [T, heads P + 2 groups N], [T, heads]
  const float *a_log = nullptr, *dt_bias = nullptr, *d = nullptr;  // [heads]
  float dt_min = 0, dt_max = 0;
  int heads = 0, head_dim = 0, groups = 0, state_dim = 0;
  Rows state;                    // [slots, heads * P * N] f32
  Rows tape;                     // [tapes, kRowsPerTape * (xbc row | dt)] or null
  BatchView batch;
};
void launch_ssd(const SsdView& args, Stream stream);  // state_dim at most 256

// Writes the rows of each sequence that has a tape to it, parts side by side. After everything that reads the tape.
struct TapeArgs {
  Rows tape;                     // [tapes, kRowsPerTape * width]
  int width = 0;
  Rows parts[3];
  int widths[3] = {};            // 0 = absent
  bool wide = false;             // eight elements of any of them, at multiples of eight, allow 16-byte accesses
  BatchView batch;
};
void launch_write_tapes(const TapeArgs& args, Stream stream);

}  // namespace strata::cuda
