// Parity of norms within what takes their output: norm_linear, and moe from the residual stream on.
#include "cuda/random_weights.h"

namespace strata::testing {
namespace {

class NormProductParity : public Parity {};
STRATA_PARITY(NormProductParity);

// The norm within the product: weights of one type, or f8 ones above bf16 ones; more and fewer tiles than blocks; and sizes
// that are done one after the other.
TEST_P(NormProductParity, NormLinear) {
  struct Case {
    int rows, upper, lower, inputs;
    DType upper_type;
    bool delta, bias;
  };
  unsigned seed = 9000;
  for (const Case& c : {Case{1, 384, 33, 2048, DType::kF8E4M3, true, false}, {1, 7424, 5, 136, DType::kF8E4M3, true, true},
                        {2, 128, 64, 264, DType::kF8E4M3, false, true}, {2, 9001, 0, 72, DType::kF8E4M3, true, false},
                        {1, 300, 0, 2048, DType::kBF16, true, true}, {2, 4500, 0, 1000, DType::kBF16, true, false},
                        {2, 1, 0, 8, DType::kBF16, false, false}, {3, 100, 7, 264, DType::kF8E4M3, true, true}, {4, 7000, 64, 2048, DType::kF8E4M3, true, false},
                        {4, 300, 0, 2040, DType::kBF16, true, true}, {5, 100, 7, 264, DType::kF8E4M3, true, true},
                        {1, 100, 0, 2056, DType::kBF16, true, true}, {2, 6400, 40, 2048, DType::kF8E4M3, true, true},
                        {1, 16, 2300, 1032, DType::kF8E4M3, true, false}, {8, 2300, 24, 2056, DType::kF8E4M3, true, true},
                        {2, 2300, 0, 1032, DType::kBF16, true, true}, {8, 2300, 0, 1032, DType::kBF16, true, false}, {2, 40, 0, 37, DType::kBF16, true, false}}) {
    Matrix m = random_weights(c.upper_type, {c.upper}, c.inputs, seed += 10);
    if (c.lower > 0) {
      Matrix below = random_weights(DType::kBF16, {c.lower}, c.inputs, seed + 1);
      m.matrix.pieces.push_back(below.matrix.pieces[0]);
      m.owned.push_back(std::move(below.owned[0]));
    }
    const int outputs = c.upper + c.lower;
    const WeightPair w = weight(m.matrix);
    const Pair stream = both(random_tensor({c.rows, c.inputs + 8}, seed + 2, 3), DType::kF32), delta = activations({c.rows, c.inputs}, seed + 3),
               norm = vector(c.inputs, seed + 4, 0.2F, 1), bias = vector(outputs, seed + 5), normed = poisoned({c.rows, c.inputs}),
               out = poisoned({c.rows, outputs + 3});
    const auto run = [&](Ops& ops, auto side) {
      ops.norm_linear(side(out).columns(0, outputs),
                      {.out = side(normed), .x = side(stream).columns(0, c.inputs), .delta = c.delta ? side(delta) : Tensor(), .scale = 0.5F,
                       .weight = side(norm), .eps = 1e-5F},
                      side(w), c.bias ? side(bias) : Tensor());
    };
    run(cpu(), [](const auto& p) -> const auto& { return p.cpu; });
    occupy(gpu());
    run(gpu(), [](const auto& p) -> const auto& { return p.gpu; });
    const std::string what = std::string(name(c.upper_type)) + " " + std::to_string(c.rows) + "x" + std::to_string(outputs) + "x" + std::to_string(c.inputs);
    EXPECT_LT(distance(stream), 1e-6) << what;
    EXPECT_LT(distance(normed), tolerance()) << what;
    EXPECT_LT(distance(out), tolerance()) << what;
  }
}

// With more rows the norm makes the f8 planes of its output, for all products that take it: the same as made after it, bit for bit.
TEST_P(NormProductParity, PlanesOfTheNorm) {
  if (!bf16()) GTEST_SKIP() << "f32 activations are never split";
  unsigned seed = 9500;
  for (const bool one_plane : {false, true}) {
    CudaOps ops({.f8_activations = one_plane});
    for (const auto& [rows, upper, lower, inputs] : {std::tuple{17, 130, 24, 128}, {70, 384, 0, 2048}, {33, 256, 5, 640}, {20, 100, 0, 8192}, {40, 128, 0, 136}}) {
      Matrix m = random_weights(DType::kF8E4M3, {upper}, inputs, seed += 10);
      const Matrix below = random_weights(DType::kBF16, {std::max(lower, 1)}, inputs, seed + 1);
      if (lower > 0) m.matrix.pieces.push_back(below.matrix.pieces[0]);
      const WeightPair w = weight(m.matrix);
      const Pair delta = activations({rows, inputs}, seed + 2), norm = vector(inputs, seed + 3, 0.2F, 1);
      std::vector<std::vector<float>> got[2];
      for (const bool in_steps : {false, true}) {
        HostTensor start = random_tensor({rows, inputs}, seed + 4, 3);
        for (int k = 0; k < inputs; ++k) start.view().row<float>(5)[k] = -delta.cpu.row<float>(5)[k];  // a row of zeros
        start.view().row<float>(7)[3] = 1e6F;
        start.view().row<float>(9)[inputs - 1] = kNan;
        const Pair stream = both(std::move(start), DType::kF32), normed = poisoned({rows, inputs}), out = poisoned({rows, upper + lower});
        const AddNorm add{.out = normed.gpu, .x = stream.gpu, .delta = delta.gpu, .weight = norm.gpu, .eps = 1e-5F};
        occupy(ops);
        in_steps ? ops.Ops::norm_linear(out.gpu, add, w.gpu, {}) : ops.norm_linear(out.gpu, add, w.gpu, {});
        ops.synchronize();
        for (const Pair& p : {stream, normed, out}) {
          got[in_steps ? 1 : 0].push_back(fetch(p.gpu));
          for (float& x : got[in_steps ? 1 : 0].back()) x = std::isnan(x) ? -12345.0F : x;
        }
      }
      EXPECT_EQ(got[0], got[1]) << rows << "x" << upper + lower << "x" << inputs;
      EXPECT_NE(got[0].back()[0], -12345.0F);
    }
  }
}

// The mixture from the residual stream on: the norm, the router's product and the choice in one launch, and where they are not.
TEST_P(NormProductParity, MoeFromTheStream) {
  struct Case {
    int rows, experts, k, width;
    DType router;
    bool delta, gate;
    Scoring scoring;
    int groups, top_groups;
  };
  constexpr int kHidden = 48;
  unsigned seed = 8000;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    if (!bf16() && dtype != DType::kBF16) continue;  // f32 activations: all op by op
    for (const Case& c : {Case{1, 16, 4, 64, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {1, 64, 8, 2048, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {2, 256, 8, 264, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {2, 33, 3, 264, DType::kBF16, false, false, Scoring::kTopKSoftmax, 1, 1},
                          {2, 40, 6, 512, DType::kBF16, true, true, Scoring::kSigmoid, 8, 3},
                          {2, 9, 8, 4096, DType::kBF16, true, false, Scoring::kSoftmax, 1, 1},
                          {2, 257, 2, 264, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {1, 250, 5, 200, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {1, 12, 3, 8, DType::kBF16, true, false, Scoring::kSoftmax, 1, 1},
                          {2, 16, 4, 4104, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {2, 16, 4, 256, DType::kF8E4M3, true, true, Scoring::kSoftmax, 1, 1},
                          {3, 16, 4, 64, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {9, 16, 4, 512, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {16, 256, 8, 128, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {100, 64, 8, 256, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {30, 16, 4, 512, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1}}) {
      seed += 30;
      const int outputs = c.experts + (c.gate ? 1 : 0);
      const auto matrix = [&](DType type, int rows, int inputs, unsigned at, int experts) {
        return random_weights(type, std::vector<int>(static_cast<std::size_t>(std::max(experts, 1)), rows), inputs, at, experts);
      };
      const Matrix in = matrix(dtype, 2 * kHidden, c.width, seed, c.experts), down = matrix(dtype, c.width, kHidden, seed + 1, c.experts),
                   shared_in = matrix(dtype, 2 * kHidden, c.width, seed + 2, 0), shared_down = matrix(dtype, c.width, kHidden, seed + 3, 0),
                   router = matrix(c.router, outputs, c.width, seed + 4, 0);
      const WeightPair win = weight(in.matrix), wdown = weight(down.matrix), wshared_in = weight(shared_in.matrix), wshared_down = weight(shared_down.matrix),
                       wrouter = weight(router.matrix);
      const Pair stream = both(random_tensor({c.rows, c.width + 8}, seed + 5, 3), DType::kF32), delta = activations({c.rows, c.width}, seed + 6),
                 norm = vector(c.width, seed + 7, 0.01F, 0.05F), bias = vector(outputs, seed + 8), normed = poisoned({c.rows, c.width}),
                 routed = poisoned({c.rows, outputs}, DType::kF32), out = poisoned({c.rows, c.width});
      const auto run = [&](Ops& ops, auto side, bool at_once) {
        const AddNorm add{.out = side(normed), .x = side(stream).columns(0, c.width), .delta = c.delta ? side(delta) : Tensor(), .scale = 0.5F,
                          .weight = side(norm), .eps = 1e-5F};
        MoeArgs args{.out = side(out), .x = side(normed),
                     .route = {.logits = side(routed).columns(0, c.experts), .scoring = c.scoring, .groups = c.groups, .top_groups = c.top_groups},
                     .k = c.k, .in = &side(win), .down = &side(wdown), .shared_in = &side(wshared_in), .shared_down = &side(wshared_down)};
        if (c.gate) args.shared_gate = side(routed).columns(c.experts, 1);
        if (at_once) {
          args.norm = add, args.router = &side(wrouter), args.router_bias = side(bias), args.routed = side(routed);
        } else {
          ops.normalise(add);
          for (std::int64_t i = 0; bf16() && i < normed.cpu.elements(); ++i) {  // so that both choose the same
            auto* x = normed.cpu.data<float>() + i;
            *x = to_float(to_bfloat16(*x));
          }
          ops.linear(side(routed), args.x, side(wrouter), side(bias));
        }
        ops.moe(args);
      };
      run(cpu(), [](const auto& p) -> const auto& { return p.cpu; }, false);
      occupy(gpu());
      run(gpu(), [](const auto& p) -> const auto& { return p.gpu; }, true);
      const std::string what = std::string(name(dtype)) + " " + std::to_string(c.rows) + " of " + std::to_string(c.experts) + ", " + std::to_string(c.width);
      EXPECT_LT(distance(stream), 1e-6) << what;
      EXPECT_LT(distance(normed), tolerance()) << what;
      EXPECT_LT(distance(routed), bf16() ? 1e-3 : 1e-4) << what;
      EXPECT_LT(distance(out), 2 * tolerance()) << what;
    }
  }
}

}  // namespace
}  // namespace strata::testing
