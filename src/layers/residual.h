// Residual: the stream that layers read normalised and add to.
#pragma once

#include <optional>

#include "ops/ops.h"

namespace strata {

struct Norm {
  Tensor weight;      // [D] f32, already 1 + w where the family means that
  float eps = 1e-6F;
};

struct HyperConnection;  // layers/hyper_residual.h

// How a sublayer hangs on the stream: h = norm(x); x += scale * post(f(h)).
struct Sublayer {
  Norm norm;
  std::optional<Norm> post = {};
  float scale = 1;
  const HyperConnection* hyper = nullptr;  // on several streams (HyperResidual), instead of all the above; the model keeps it
};

// One step's stream [T, D] f32: what a hundred layers add up must not be rounded a hundred times. Adding is lazy, so that the
// add and the next norm are one op. Lives for one forward pass; its
// tensors are scratch of that pass.
class Residual {
 public:
  Residual(Tensor x, Ops& ops);
  virtual ~Residual() = default;
  Residual(const Residual&) = delete;
  Residual& operator=(const Residual&) = delete;

  // The normalised input of a sublayer [T, D], as what is left to do for it; valid until the next call.
  virtual AddNorm entry(const Sublayer& sublayer);
  Tensor enter(const Sublayer& sublayer);  // the same, done
  // Where the sublayer writes its output [T, D], between enter() or entry() and leave().
  Tensor output() const { return output_; }
  // Adds what was written to output().
  virtual void leave(const Sublayer& sublayer);

  // The stream itself, nothing pending [T, D].
  virtual Tensor flush();
  // flush() and normalise: the input of the head [T, D].
  virtual Tensor finish(const Norm& norm);

 protected:
  AddNorm take(const Norm& norm);  // what is pending becomes part of it

  Ops& ops_;
  Tensor x_, normed_, output_;
  bool pending_ = false;
  float pending_scale_ = 1;
};

}  // namespace strata
