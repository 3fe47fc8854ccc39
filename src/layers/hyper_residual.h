// HyperResidual: several residual streams side by side, mixed into each sublayer's input by learned weights
// (hyper-connections; Zhu et al. 2024, low-rank as Qwen4-Exp has them).
#pragma once

#include "layers/residual.h"

namespace strata {

// Weights of one sublayer (or of the end) over S streams of D: with n = norm(x) per stream,
// h = mean_s(sigmoid(up(silu(down(n) / S)))_s * n_s), and its output f comes back as x_s += 2
// sigmoid(inject(n) / S)_s * f.
struct HyperConnection {
  Norm norm;      // [S, D]
  Weight down;    // [rank, S*D]
  Weight up;      // [S*D, rank]
  Weight inject;  // [S, S*D]; empty at the end
};

class HyperResidual final : public Residual {
 public:
  // x [T, D] is every stream's start; `end` outlives this.
  HyperResidual(Tensor x, int streams, const HyperConnection& end, Ops& ops);

  AddNorm entry(const Sublayer& sublayer) override;
  void leave(const Sublayer& sublayer) override;
  Tensor flush() override;                   // [T, S*D]
  Tensor finish(const Norm& norm) override;  // the end's own mixture; `norm` is not used

 private:
  Tensor mix(const HyperConnection& connection);

  std::int64_t streams_, dim_;
  const HyperConnection& end_;
  Tensor streams_normed_, injection_;  // [T, S*D], [T, S]
};

}  // namespace strata
