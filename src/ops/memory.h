// What a layer keeps between steps: its declaration (StateSpec) and the views of the pools it is handed (Memory).
#pragma once

#include <variant>
#include <vector>

#include "tensor/tensor.h"

namespace strata {

struct Stateless {};

// Grows by one entry a token, in pages. value_dim -1 = head_dim; 0 = the values are the first columns of the keys (MLA).
struct PagedKv {
  int heads = 0, head_dim = 0;
  int value_dim = -1;
  int window = 0;      // tokens a row sees, itself included; 0 = all
  int index_dim = 0;   // per-token indexer key of sparse attention; 0 = none
};

// Fixed size, one copy per slot. `tape` = inputs of one row that replaying it takes (elements of each tape entry, one per
// tape tensor); a layer that cannot replay leaves it empty.
struct Recurrent {
  std::vector<Shape> tensors;
  std::vector<int> tape;
  DType dtype = DType::kF32;
};

using StateSpec = std::variant<Stateless, PagedKv, Recurrent>;

struct KvView {
  Tensor k;       // [P, kPageTokens, heads, head_dim]
  Tensor v;       // [P, kPageTokens, heads, value_dim]; empty when value_dim is 0
  Tensor index;   // [P, kPageTokens, index_dim]; empty when index_dim is 0
};

struct StateView {
  std::vector<Tensor> tensors;  // each [slots, ...spec.tensors[i]]
  std::vector<Tensor> tapes;    // each [tapes, kTapeRows, spec.tape[i]]
};

using Memory = std::variant<Stateless, KvView, StateView>;

}  // namespace strata
