// Launches of rms_norm, add_rms_norm and gated_norm.
#pragma once

#include "ops/cuda/views.h"

namespace strata {
struct AddNorm;
}

namespace strata::cuda {

struct NormArgs {
  Rows out, x, delta;             // [rows, columns]; delta.data null = plain norm
  const float* weight = nullptr;  // [columns] or null (= 1)
  std::int64_t rows = 0;
  int columns = 0;
  float scale = 1, eps = 0;
  bool wide = false;
  // Also makes `count` f8 planes of out, as QuantiseArgs has them: columns a multiple of 128 and at most kPlaneColumns, `wide`,
  // out bf16. 0 = none.
  int count = 0;
  std::uint8_t* planes = nullptr;
  float* scales = nullptr;
};
constexpr int kPlaneColumns = 8192;
NormArgs norm_of(const AddNorm& norm);  // checks it
void launch_norm(const NormArgs& args, Stream stream);

struct GatedNormView {
  Rows out, x, gate;              // [rows, channels]
  const float* weight = nullptr;  // channel c uses weight[c % period]
  std::int64_t rows = 0;
  int channels = 0, group = 0, period = 0, activation = 0;
  float eps = 0;
  bool gate_first = false, wide = false;
};
void launch_gated_norm(const GatedNormView& args, Stream stream);

}  // namespace strata::cuda
