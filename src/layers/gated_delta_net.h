// GatedDeltaNet: linear attention whose state is edited by the gated delta rule (Yang, Kautz and Hatamizadeh 2024).
#pragma once

#include "layers/linear.h"
#include "layers/transformer_layer.h"

namespace strata {

struct GatedDeltaNetConfig {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int conv_width = 4;
  Activation gate = Activation::kSilu;  // of z in the output norm
};

struct GatedDeltaNetWeights {
  Sublayer sublayer;
  Linear in;             // [(q | k | v | z | b | a), D]
  Tensor conv;           // [2*Hk*K + Hv*V, width] f32
  Tensor a_log, dt_bias; // [Hv] f32
  Norm norm;             // [V], of the output
  Linear out;            // [D, Hv*V]
};

// Keeps the convolution's window and the state S [Hv, K, V] of each sequence.
class GatedDeltaNet final : public TransformerLayer {
 public:
  GatedDeltaNet(const GatedDeltaNetConfig& config, GatedDeltaNetWeights weights);
  StateSpec state() const override;
  void linears(Linears& all) const override { all.add(w_.in, w_.out); }
  void forward(Residual& x, const Batch& batch, const Memory& memory, Ops& ops) const override;

 private:
  int channels() const { return 2 * config_.key_heads * config_.key_dim + config_.value_heads * config_.value_dim; }

  GatedDeltaNetConfig config_;
  GatedDeltaNetWeights w_;
};

}  // namespace strata
