// Launches of add, multiply, scale, activate and glu; x [rows, columns] unless said.
#pragma once

#include "ops/cuda/views.h"

namespace strata::cuda {

struct ElementwiseArgs {
  Rows x, y;            // y: the other operand, if any
  Rows out;             // glu only
  std::int64_t rows = 0, columns = 0;
  float factor = 1, limit = 0;  // limit: softcap of scale, clamp of glu
  int activation = 0;           // as strata::Activation
  bool wide = false;            // every row allows 16-byte accesses
  bool one = false;             // multiply: y is [rows, 1]
};

void launch_add(const ElementwiseArgs& args, Stream stream);
void launch_multiply(const ElementwiseArgs& args, Stream stream);
void launch_scale(const ElementwiseArgs& args, Stream stream);
void launch_activate(const ElementwiseArgs& args, Stream stream);
void launch_glu(const ElementwiseArgs& args, Stream stream);  // x [rows, 2 * columns] = gate | up

}  // namespace strata::cuda
