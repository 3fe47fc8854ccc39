// Mamba2: a state space mixer with scalar decay per head (Dao and Gu 2024).
#pragma once

#include "layers/linear.h"
#include "layers/transformer_layer.h"

namespace strata {

struct Mamba2Config {
  int heads = 0, head_dim = 0, groups = 1, state_dim = 0;
  int conv_width = 4;
  float dt_min = 0, dt_max = 0;  // clamp of the step; dt_max 0 = none
  int norm_groups = 1;           // parts of a row that the output norm treats apart
};

struct Mamba2Weights {
  Sublayer sublayer;
  Linear in;                 // [(gate | x | B | C | dt), D]
  Tensor conv, conv_bias;    // [H*P + 2*G*N, width], [H*P + 2*G*N] or empty
  Tensor a_log, dt_bias, d;  // [H]
  Norm norm;                 // [H*P], of output * silu(gate)
  Linear out;                // [D, H*P]
};

// Keeps the convolution's window and the state [H, P, N] of each sequence.
class Mamba2 final : public TransformerLayer {
 public:
  Mamba2(const Mamba2Config& config, Mamba2Weights weights);
  StateSpec state() const override;
  void linears(Linears& all) const override { all.add(w_.in, w_.out); }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  int inner() const { return config_.heads * config_.head_dim; }
  int channels() const { return inner() + 2 * config_.groups * config_.state_dim; }

  Mamba2Config config_;
  Mamba2Weights w_;
};

}  // namespace strata
