// Launches of moe for few rows.
#pragma once

#include "ops/cuda/route.h"

namespace strata::cuda {

constexpr int kMoeRows = 8, kMoeEntries = 64;  // at most; beyond it tiles of the tensor cores are quicker

// With f8 weights all rows of x, and all of hidden that a row of out needs, are in shared memory in blocks of
// 128 inputs: so many at most.
constexpr int kMoeBlock = 128, kMoeBlocks = 512;
constexpr std::int64_t moe_blocks(std::int64_t rows, std::int64_t inputs, std::int64_t shared_inputs = 0) {
  const auto blocks = [](std::int64_t n) { return (n + kMoeBlock - 1) / kMoeBlock; };
  return rows * blocks(inputs) + blocks(shared_inputs);
}

// See MoeArgs of ops/ops.h. bf16 x, hidden and shared_hidden with rows of 16-byte pieces; weights all of
// one type: bf16, f8 or one of 4 bits.
struct MoeView {
  Rows out, x;
  WeightView in, down, shared_in, shared_down;  // shared ones: outputs 0 = none
  const float *in_bias = nullptr, *down_bias = nullptr, *shared_in_bias = nullptr,
              *shared_down_bias = nullptr;  // or null
  RouteView route;                          // chosen by launch_route(), without order and first
  Rows shared_gate;                         // [rows, 1] or null
  Rows hidden, shared_hidden;               // scratch [rows * k, F], [rows, F']
  int activation = 0, processors = 132;
  float limit = 0;
};
void launch_moe_few(const MoeView& args, Stream stream);
void launch_moe_few_four_bit(const MoeView& args, Stream stream);  // what it calls for 4-bit weights

}  // namespace strata::cuda
