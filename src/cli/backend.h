// The backend that a command's flags name: this file's source is the only one outside ops/cuda that knows
// which there are.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "ops/ops.h"

namespace strata {

struct OpTime;

struct BackendFlags {
  std::string name = "cpu";  // or "cuda"
  int threads = 0;           // of the CPU's; 0 = one per core
  bool f32 = false;          // CUDA: activations and weights in f32 instead of bf16
  bool f8_activations = false;  // CUDA: products of many rows with f8 weights round activations to f8
  std::map<std::string_view, OpTime>* times = nullptr;  // CPU: where ops leave what they take (timed_ops.h)
  bool dummy = false;        // matrices are random numbers whatever is loaded: CUDA makes them on the device
};

// Error when this build does not have it or this machine cannot run it.
std::shared_ptr<Ops> make_backend(const BackendFlags& flags);

// What may go to keys, values and states when nobody says: a GiB of the host's memory; of a device's, what is
// free now less `scratch` and a tenth.
std::size_t default_memory(const Ops& ops, std::size_t scratch);

}  // namespace strata
