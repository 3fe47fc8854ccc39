// Parity of linear, expert_linear, route, combine and moe.
#include "cuda/parity.h"
#include "ops/test_matrix.h"

namespace strata::testing {
namespace {

class ProductParity : public Parity {};
STRATA_PARITY(ProductParity);

// Pieces of bf16, or of f8 with a scale for every 128 x 128 block.
struct Matrix {
  std::deque<test::Owned> owned;
  HostMatrix matrix;
};

Matrix random_weights(DType dtype, const std::vector<int>& piece_rows, std::int64_t inputs, unsigned seed, int experts = 0) {
  Matrix m;
  m.matrix.experts = experts;
  for (const int rows : piece_rows) {
    m.owned.push_back(test::random_matrix(dtype, rows, inputs, seed++));
    HostPiece piece{m.owned.back().tensor, {}, false};
    if (dtype == DType::kF8E4M3) {
      m.owned.push_back(test::random_matrix(DType::kF32, (rows + 127) / 128, (inputs + 127) / 128, seed++));
      piece.scales = m.owned.back().tensor;
    }
    m.matrix.pieces.push_back(piece);
  }
  return m;
}

TEST_P(ProductParity, Linear) {
  struct Case {
    int rows, outputs, inputs;
    bool bias, wide_out;
  };
  unsigned seed = 100;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    for (const Case& c : {Case{1, 16, 64, false, false}, {1, 300, 2048, true, false}, {3, 129, 37, true, true}, {8, 48, 512, false, true},
                          {9, 1, 256, true, false}, {16, 200, 1000, false, false}, {17, 64, 96, true, false}, {65, 130, 264, false, true},
                          {150, 257, 384, true, false}, {64, 256, 1024, false, false}, {40, 330, 2048, true, false}, {2, 100, 256, false, false}, {300, 384, 520, false, false},
                          {1, 7003, 136, true, false}, {16, 9001, 72, false, true}, {7, 2112, 4104, true, false}, {12, 6500, 1160, true, false}}) {
      const Matrix m = random_weights(dtype, {c.outputs}, c.inputs, seed += 10);
      const WeightPair w = weight(m.matrix);
      const Pair x = activations({c.rows, c.inputs + 8}, seed + 1), bias = vector(c.outputs, seed + 2);
      const Pair out = c.wide_out ? poisoned({c.rows, c.outputs + 5}, DType::kF32) : poisoned({c.rows, c.outputs + 5});
      const Pair part = out.columns(0, c.outputs), in = x.columns(0, c.inputs);
      cpu().linear(part.cpu, in.cpu, w.cpu, c.bias ? bias.cpu : Tensor());
      gpu().linear(part.gpu, in.gpu, w.gpu, c.bias ? bias.gpu : Tensor());
      EXPECT_LT(distance(out), tolerance()) << name(dtype) << " " << c.rows << "x" << c.outputs << "x" << c.inputs;
    }
  }
}

TEST_P(ProductParity, StackedPieces) {
  for (const auto& rows : {std::vector<int>{128, 256, 64}, std::vector<int>{40, 130, 7}}) {
    const Matrix m = random_weights(DType::kF8E4M3, rows, 300, 500);
    const WeightPair w = weight(m.matrix);
    const std::int64_t outputs = w.cpu.outputs();
    const Pair x = activations({5, 300}, 501), out = poisoned({5, outputs});
    cpu().linear(out.cpu, x.cpu, w.cpu, {});
    gpu().linear(out.gpu, x.gpu, w.gpu, {});
    EXPECT_LT(distance(out), tolerance()) << outputs;
  }
}

TEST_P(ProductParity, Glu) {
  struct Case {
    int rows, half, inputs;
    Activation activation;
    bool bias;
  };
  unsigned seed = 3000;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (const Case& c : {Case{1, 64, 96, Activation::kSilu, false}, {7, 48, 264, Activation::kGeluTanh, true}, {13, 200, 512, Activation::kSilu, true},
                          {20, 37, 64, Activation::kSilu, false}, {40, 144, 512, Activation::kSilu, false}, {70, 512, 128, Activation::kClampedSwiGlu, true},
                          {300, 1024, 136, Activation::kSilu, true}}) {
      const Matrix m = random_weights(dtype, {c.half, c.half}, c.inputs, seed += 10);
      const WeightPair w = weight(m.matrix);
      const Pair x = activations({c.rows, c.inputs}, seed + 1), bias = vector(2 * c.half, seed + 2), out = poisoned({c.rows, c.half + 8});
      const Pair part = out.columns(0, c.half);
      cpu().linear_glu(part.cpu, x.cpu, w.cpu, c.bias ? bias.cpu : Tensor(), c.activation, 7);
      gpu().linear_glu(part.gpu, x.gpu, w.gpu, c.bias ? bias.gpu : Tensor(), c.activation, 7);
      EXPECT_LT(distance(out), tolerance()) << name(dtype) << " " << c.rows << "x" << c.half << "x" << c.inputs;
    }
    for (const auto& [rows, experts, k] : {std::tuple{1, 16, 4}, {9, 8, 3}, {70, 16, 2}, {400, 4, 2}}) {
      seed += 10;
      const Pair logits = both(random_tensor({rows, experts}, seed), DType::kF32);
      const Routing on_cpu = cpu().route({.logits = logits.cpu}, k), on_gpu = gpu().route({.logits = logits.gpu}, k);
      const Matrix m = random_weights(dtype, std::vector<int>(static_cast<std::size_t>(experts), 2 * 96), 160, seed + 1, experts);
      const WeightPair w = weight(m.matrix);
      const Pair x = activations({rows, 160}, seed + 2), bias = both(random_tensor({experts, 192}, seed + 3), DType::kF32), out = poisoned({rows * k, 96});
      cpu().expert_linear_glu(out.cpu, x.cpu, on_cpu, w.cpu, bias.cpu, Activation::kSilu, 0);
      gpu().expert_linear_glu(out.gpu, x.gpu, on_gpu, w.gpu, bias.gpu, Activation::kSilu, 0);
      EXPECT_LT(distance(out), tolerance()) << name(dtype) << " experts " << rows << " of " << experts;
    }
  }
}

// Every size of tile, and what is left over in each.
TEST_P(ProductParity, TilesOfEverySize) {
  struct Case {
    int rows, outputs, inputs;
    bool glu;
  };
  unsigned seed = 5000;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (const Case& c : {Case{60, 12700, 136, false}, {1600, 2050, 264, false}, {1700, 2048, 520, true}, {50, 25600, 72, true}}) {
      const Matrix m = random_weights(dtype, {c.outputs}, c.inputs, seed += 10);
      const WeightPair w = weight(m.matrix);
      const Pair x = activations({c.rows, c.inputs}, seed + 1), out = poisoned({c.rows, c.glu ? c.outputs / 2 : c.outputs});
      if (c.glu) {
        cpu().linear_glu(out.cpu, x.cpu, w.cpu, {}, Activation::kSilu, 0);
        gpu().linear_glu(out.gpu, x.gpu, w.gpu, {}, Activation::kSilu, 0);
      } else {
        cpu().linear(out.cpu, x.cpu, w.cpu, {});
        gpu().linear(out.gpu, x.gpu, w.gpu, {});
      }
      EXPECT_LT(distance(out), tolerance()) << name(dtype) << " " << c.rows << "x" << c.outputs << "x" << c.inputs;
    }
    for (const auto& [rows, experts, k, outputs, inputs] : {std::tuple{400, 16, 2, 2048, 136}, {500, 64, 4, 300, 96}, {900, 16, 2, 1792, 264}, {150, 256, 2, 96, 200}}) {
      seed += 10;
      HostTensor scores = random_tensor({rows, experts}, seed);
      for (int r = 0; r < rows; ++r) scores.view().row<float>(r)[experts / 3] += 1.5F;  // one expert gets many
      const Pair logits = both(std::move(scores), DType::kF32);
      const Routing on_cpu = cpu().route({.logits = logits.cpu}, k), on_gpu = gpu().route({.logits = logits.gpu}, k);
      const Matrix m = random_weights(dtype, std::vector<int>(static_cast<std::size_t>(experts), outputs), inputs, seed + 1, experts);
      const WeightPair w = weight(m.matrix);
      const Pair x = activations({rows, inputs}, seed + 2), out = poisoned({rows * k, outputs}), half = poisoned({rows * k, outputs / 2});
      cpu().expert_linear(out.cpu, x.cpu, on_cpu, w.cpu, {});
      gpu().expert_linear(out.gpu, x.gpu, on_gpu, w.gpu, {});
      EXPECT_LT(distance(out), tolerance()) << name(dtype) << " experts " << rows << " of " << experts;
      if (outputs % 32 != 0) continue;
      cpu().expert_linear_glu(half.cpu, x.cpu, on_cpu, w.cpu, {}, Activation::kSilu, 0);
      gpu().expert_linear_glu(half.gpu, x.gpu, on_gpu, w.gpu, {}, Activation::kSilu, 0);
      EXPECT_LT(distance(half), tolerance()) << name(dtype) << " experts with GLU " << rows << " of " << experts;
    }
  }
}

// Rows that differ in size by 40 powers of ten, rows with one channel a thousand times the others (whose weights are zero, so
// that the others count), rows of zeros; and numbers that are none stay in their row.
TEST_P(ProductParity, RowsOfAnySize) {
  if (!bf16()) GTEST_SKIP() << "f32 activations are never split";
  constexpr int kOutputs = 200, kOutlier = 3;
  unsigned seed = 6000;
  for (const auto& [rows, inputs] : {std::pair{33, 2048}, {70, 264}, {200, 1000}, {40, 4616}}) {
    const Matrix m = random_weights(DType::kF8E4M3, {kOutputs}, inputs, seed += 10);
    for (int n = 0; n < kOutputs; ++n) test::put(m.matrix.pieces[0].data, n, kOutlier, 0);
    HostTensor values = random_tensor({rows, inputs}, seed + 1);
    for (int r = 0; r < rows; ++r) {
      float* row = values.view().row<float>(r);
      const float factor[] = {1, 0, 1e-20F, 1e20F, 1};
      for (int k = 0; k < inputs; ++k) row[k] *= factor[r % 5];
      if (r % 5 == 4) row[kOutlier] = r % 2 == 0 ? 1000.0F : -1000.0F;
    }
    const int nan_row = 15, inf_row = 20;
    values.view().row<float>(nan_row)[inputs - 1] = kNan;
    values.view().row<float>(inf_row)[0] = INFINITY;
    const WeightPair w = weight(m.matrix);
    const Pair x = both(std::move(values), DType::kBF16), out = poisoned({rows, kOutputs});
    cpu().linear(out.cpu, x.cpu, w.cpu, {});
    gpu().linear(out.gpu, x.gpu, w.gpu, {});
    const std::vector<float> got = fetch(out.gpu);
    for (int r = 0; r < rows; ++r) {
      double error = 0, norm = 0;
      for (int n = 0; n < kOutputs; ++n) {
        const double value = got[static_cast<std::size_t>(r * kOutputs + n)], want = out.cpu.row<float>(r)[n];
        if (r == nan_row || r == inf_row) {
          EXPECT_FALSE(std::isfinite(value)) << r << " " << n;
          continue;
        }
        error += (value - want) * (value - want);
        norm += want * want;
      }
      EXPECT_LE(std::sqrt(error), tolerance() * std::sqrt(norm)) << r << " of " << rows << "x" << inputs;
    }
  }
}

// With f8 activations a product is that of the rounded rows, and not of the rows.
TEST_P(ProductParity, F8Activations) {
  if (!bf16()) GTEST_SKIP() << "f32 activations are never rounded";
  CudaOps other({.f8_activations = true});
  for (const auto& [rows, outputs, inputs] : {std::tuple{40, 200, 1000}, {1600, 2048, 264}}) {
    const Matrix m = random_weights(DType::kF8E4M3, {outputs}, inputs, 7000);
    const WeightPair w = weight(m.matrix);
    const Pair x = activations({rows, inputs}, 7001), out = poisoned({rows, outputs});
    HostTensor rounded({rows, inputs});
    for (int r = 0; r < rows; ++r) {
      float most = 0;
      for (int k = 0; k < inputs; ++k) most = std::max(most, std::fabs(x.cpu.row<float>(r)[k]));
      float scale = 1;
      while (most / scale > 448) scale *= 2;
      while (most / scale <= 224) scale /= 2;
      for (int k = 0; k < inputs; ++k) rounded.view().row<float>(r)[k] = scale * f8e4m3_to_float(float_to_f8e4m3(x.cpu.row<float>(r)[k] / scale));
    }
    other.linear(out.gpu, x.gpu, w.gpu, {});
    other.synchronize();
    cpu().linear(out.cpu, rounded.view(), w.cpu, {});
    EXPECT_LT(distance(out), tolerance()) << rows;
    cpu().linear(out.cpu, x.cpu, w.cpu, {});
    EXPECT_GT(distance(out), 1e-2) << rows;
  }
}

// f8 matrices with a bf16 one stacked below, as delta nets have their gates: the f8 ones stay f8.
TEST_P(ProductParity, MixedPieces) {
  Matrix m = random_weights(DType::kF8E4M3, {256, 128}, 300, 510);
  Matrix gates = random_weights(DType::kBF16, {24, 9}, 300, 520);
  m.matrix.pieces.insert(m.matrix.pieces.end(), gates.matrix.pieces.begin(), gates.matrix.pieces.end());
  const WeightPair w = weight(m.matrix);
  EXPECT_EQ(w.gpu.parts.size(), bf16() ? 2U : 0U);
  EXPECT_EQ(w.gpu.dtype, bf16() ? DType::kF8E4M3 : DType::kF32);
  const Pair bias = vector(417, 532);
  for (const int rows : {1, 5, 12, 20}) {
    const Pair x = activations({rows, 300}, 531), out = poisoned({rows, 417});
    cpu().linear(out.cpu, x.cpu, w.cpu, bias.cpu);
    gpu().linear(out.gpu, x.gpu, w.gpu, bias.gpu);
    EXPECT_LT(distance(out), tolerance()) << rows;
  }
}

// The same in one launch, where rows have pieces of 16 bytes: fewer and more tiles than blocks.
TEST_P(ProductParity, MixedPiecesTogether) {
  unsigned seed = 5300;
  for (const auto& [upper, lower, inputs] : {std::tuple{128, 33, 264}, {7424, 5, 136}, {384, 64, 2048}}) {
    Matrix m = random_weights(DType::kF8E4M3, {upper}, inputs, seed += 10);
    Matrix gates = random_weights(DType::kBF16, {lower}, inputs, seed + 1);
    m.matrix.pieces.insert(m.matrix.pieces.end(), gates.matrix.pieces.begin(), gates.matrix.pieces.end());
    const WeightPair w = weight(m.matrix);
    const Pair bias = vector(upper + lower, seed + 2);
    for (const int rows : {1, 8, 9, 16, 17}) {
      const Pair x = activations({rows, inputs}, seed + 3), out = poisoned({rows, upper + lower + 3}), part = out.columns(0, upper + lower);
      cpu().linear(part.cpu, x.cpu, w.cpu, rows == 9 ? Tensor() : bias.cpu);
      gpu().linear(part.gpu, x.gpu, w.gpu, rows == 9 ? Tensor() : bias.gpu);
      EXPECT_LT(distance(out), tolerance()) << upper << " " << rows;
    }
  }
}

TEST(DummyWeights, AreMadeOnTheDevice) {
  if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  CudaOps gpu({.dummy_weights = true});
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    HostMatrix shape;  // nothing behind it
    const HostTensor scales({3, 2});
    shape.pieces.push_back({Tensor(reinterpret_cast<std::byte*>(64), dtype, {300, 200}), dtype == DType::kBF16 ? Tensor() : scales.view(), false});
    const Weight w = gpu.load(shape, {});
    std::vector<std::byte> raw(w.storage.bytes());
    gpu.copy_to_host(raw.data(), w.storage.view(DType::kU8, {static_cast<std::int64_t>(raw.size())}));
    gpu.synchronize();
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < 300; ++i) {
      const double x = stored(dtype, raw.data(), i * static_cast<std::size_t>(w.data.stride()) + i % 200) * (dtype == DType::kBF16 ? 1 : 0.02 / 16);
      sum += x;
      squares += x * x;
    }
    EXPECT_NEAR(sum / 300, 0, 0.005) << name(dtype);
    EXPECT_NEAR(std::sqrt(squares / 300), 0.02, 0.005) << name(dtype);
  }
}

TEST_P(ProductParity, RouteAndExperts) {
  struct Case {
    int rows, experts, k, inputs, outputs;
    Scoring scoring;
    int groups, top_groups;
    bool bias, normalise;
  };
  unsigned seed = 1000;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (const Case& c : {Case{1, 16, 4, 64, 96, Scoring::kSoftmax, 1, 1, false, true}, {5, 33, 3, 40, 37, Scoring::kTopKSoftmax, 1, 1, true, true},
                          {70, 32, 6, 128, 64, Scoring::kSigmoid, 8, 3, true, true}, {33, 256, 8, 256, 128, Scoring::kSoftmax, 1, 1, false, false},
                          {1, 64, 8, 2048, 512, Scoring::kSoftmax, 1, 1, false, true}, {60, 64, 4, 512, 300, Scoring::kSoftmax, 1, 1, false, true},
                          {500, 8, 2, 96, 200, Scoring::kSoftmax, 1, 1, false, true}}) {
      seed += 20;
      const Pair logits = both(random_tensor({c.rows, c.experts}, seed), DType::kF32), choice = vector(c.experts, seed + 1, 0.1F);
      RouteArgs args{.logits = logits.cpu, .bias = c.bias ? choice.cpu : Tensor(), .scoring = c.scoring, .groups = c.groups,
                     .top_groups = c.top_groups, .normalise = c.normalise, .scale = 1.7F};
      const Routing on_cpu = cpu().route(args, c.k);
      args.logits = logits.gpu;
      if (c.bias) args.bias = choice.gpu;
      const Routing on_gpu = gpu().route(args, c.k);
      EXPECT_EQ(distance({on_cpu.expert, on_gpu.expert}), 0) << c.experts;
      EXPECT_EQ(distance({on_cpu.order, on_gpu.order}), 0) << c.experts;
      EXPECT_EQ(distance({on_cpu.first, on_gpu.first}), 0) << c.experts;
      EXPECT_LT(distance({on_cpu.weight, on_gpu.weight}), 1e-5) << c.experts;

      const Matrix m = random_weights(dtype, std::vector<int>(static_cast<std::size_t>(c.experts), c.outputs), c.inputs, seed + 2, c.experts);
      const Matrix back = random_weights(dtype, std::vector<int>(static_cast<std::size_t>(c.experts), c.inputs), c.outputs, seed + 3, c.experts);
      const WeightPair up = weight(m.matrix), down = weight(back.matrix);
      const Pair x = activations({c.rows, c.inputs}, seed + 4), bias = both(random_tensor({c.experts, c.outputs}, seed + 5), DType::kF32);
      const Pair hidden = poisoned({c.rows * c.k, c.outputs}), y = poisoned({c.rows * c.k, c.inputs}), out = poisoned({c.rows, c.inputs});
      cpu().expert_linear(hidden.cpu, x.cpu, on_cpu, up.cpu, bias.cpu);
      gpu().expert_linear(hidden.gpu, x.gpu, on_gpu, up.gpu, bias.gpu);
      EXPECT_LT(distance(hidden), tolerance()) << name(dtype) << " up " << c.experts;
      cpu().expert_linear(y.cpu, hidden.cpu, on_cpu, down.cpu, {});
      gpu().expert_linear(y.gpu, hidden.gpu, on_gpu, down.gpu, {});
      EXPECT_LT(distance(y), 2 * tolerance()) << name(dtype) << " down " << c.experts;
      const Pair shared = activations({c.rows, c.inputs}, seed + 6), gate = activations({c.rows, 1}, seed + 7);
      cpu().combine(out.cpu, y.cpu, on_cpu, shared.cpu, gate.cpu);
      gpu().combine(out.gpu, y.gpu, on_gpu, shared.gpu, gate.gpu);
      EXPECT_LT(distance(out), 2 * tolerance()) << name(dtype) << " combine " << c.experts;
    }
  }
}

// The whole mixture: few rows, of which several choose the same expert, and more than few.
TEST_P(ProductParity, Moe) {
  struct Case {
    int rows, experts, k, width, hidden, shared;  // shared 0 = none
    bool gate, bias;
    Activation activation;
  };
  unsigned seed = 7000;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (const Case& c : {Case{1, 16, 4, 64, 40, 24, true, false, Activation::kSilu}, {1, 9, 8, 2048, 512, 512, true, false, Activation::kSilu},
                          {3, 8, 3, 200, 136, 0, false, true, Activation::kGeluTanh}, {8, 12, 8, 264, 48, 200, false, true, Activation::kSilu},
                          {9, 33, 5, 128, 72, 96, true, true, Activation::kClampedSwiGlu}, {16, 24, 8, 1032, 264, 8, true, true, Activation::kSilu},
                          {2, 70, 64, 64, 8, 32, true, false, Activation::kSilu}, {3, 70, 50, 64, 8, 0, true, false, Activation::kSilu},
                          {5, 16, 2, 72, 44, 24, true, false, Activation::kSilu}, {21, 16, 4, 128, 64, 64, true, false, Activation::kSilu}}) {
      seed += 30;
      const auto matrix = [&](int outputs, int inputs, unsigned at, int experts) {
        return random_weights(dtype, std::vector<int>(static_cast<std::size_t>(std::max(experts, 1)), outputs), inputs, at, experts);
      };
      const Matrix in = matrix(2 * c.hidden, c.width, seed, c.experts), down = matrix(c.width, c.hidden, seed + 1, c.experts),
                   shared_in = matrix(2 * std::max(c.shared, 1), c.width, seed + 2, 0), shared_down = matrix(c.width, std::max(c.shared, 1), seed + 3, 0);
      const WeightPair win = weight(in.matrix), wdown = weight(down.matrix), wshared_in = weight(shared_in.matrix), wshared_down = weight(shared_down.matrix);
      const Pair logits = both(random_tensor({c.rows, c.experts + 1}, seed + 4), DType::kF32), x = activations({c.rows, c.width}, seed + 5),
                 out = poisoned({c.rows, c.width + 8}), bin = vector(c.experts * 2 * c.hidden, seed + 6), bdown = vector(c.experts * c.width, seed + 7),
                 bshared_in = vector(2 * c.shared + 1, seed + 8), bshared_down = vector(c.width, seed + 9);
      const auto run = [&](Ops& ops, auto side) {
        const auto vector_of = [&](const Pair& p, std::int64_t n) { return c.bias ? side(p).reshape({1, side(p).elements()}).columns(0, n) : Tensor(); };
        MoeArgs args{.out = side(out).columns(0, c.width), .x = side(x), .route = {.logits = side(logits).columns(0, c.experts)}, .k = c.k,
                     .in = &side(win), .down = &side(wdown), .in_bias = vector_of(bin, c.experts * 2 * c.hidden),
                     .down_bias = vector_of(bdown, c.experts * c.width), .activation = c.activation, .limit = 1};
        if (c.shared > 0) {
          args.shared_in = &side(wshared_in), args.shared_down = &side(wshared_down);
          args.shared_in_bias = vector_of(bshared_in, 2 * c.shared), args.shared_down_bias = vector_of(bshared_down, c.width);
          if (c.gate) args.shared_gate = side(logits).columns(c.experts, 1);
        }
        ops.moe(args);
      };
      run(cpu(), [](const auto& p) -> const auto& { return p.cpu; });
      run(gpu(), [](const auto& p) -> const auto& { return p.gpu; });
      EXPECT_LT(distance(out), 2 * tolerance()) << name(dtype) << " " << c.rows << " of " << c.experts << ", " << c.width << " x " << c.hidden;
    }
  }
}

// The norm within the product: weights of one type, or f8 ones above bf16 ones; more and fewer tiles than blocks; and sizes
// that are done one after the other.
TEST_P(ProductParity, NormLinear) {
  struct Case {
    int rows, upper, lower, inputs;
    DType upper_type;
    bool delta, bias;
  };
  unsigned seed = 9000;
  for (const Case& c : {Case{1, 384, 33, 2048, DType::kF8E4M3, true, false}, {1, 7424, 5, 136, DType::kF8E4M3, true, true},
                        {2, 128, 64, 264, DType::kF8E4M3, false, true}, {2, 9001, 0, 72, DType::kF8E4M3, true, false},
                        {1, 300, 0, 2048, DType::kBF16, true, true}, {2, 4500, 0, 1000, DType::kBF16, true, false},
                        {2, 1, 0, 8, DType::kBF16, false, false}, {3, 100, 7, 264, DType::kF8E4M3, true, true},
                        {1, 100, 0, 2056, DType::kBF16, true, true}, {2, 40, 0, 37, DType::kBF16, true, false}}) {
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
    run(gpu(), [](const auto& p) -> const auto& { return p.gpu; });
    const std::string what = std::string(name(c.upper_type)) + " " + std::to_string(c.rows) + "x" + std::to_string(outputs) + "x" + std::to_string(c.inputs);
    EXPECT_LT(distance(stream), 1e-6) << what;
    EXPECT_LT(distance(normed), tolerance()) << what;
    EXPECT_LT(distance(out), tolerance()) << what;
  }
}

// With more rows the norm makes the f8 planes of its output, for all products that take it: the same as made after it, bit for bit.
TEST_P(ProductParity, PlanesOfTheNorm) {
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
TEST_P(ProductParity, MoeFromTheStream) {
  struct Case {
    int rows, experts, k, width;
    DType router;
    bool delta, gate;
    Scoring scoring;
    int groups, top_groups;
  };
  constexpr int kHidden = 40;
  unsigned seed = 8000;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (const Case& c : {Case{1, 16, 4, 64, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {1, 256, 8, 2048, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {2, 33, 3, 264, DType::kBF16, false, false, Scoring::kTopKSoftmax, 1, 1},
                          {3, 40, 6, 2048, DType::kBF16, true, true, Scoring::kSigmoid, 8, 3},
                          {4, 9, 8, 4096, DType::kBF16, true, false, Scoring::kSoftmax, 1, 1},
                          {5, 257, 2, 1032, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {7, 250, 5, 1000, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {8, 256, 8, 2048, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {8, 12, 3, 8, DType::kBF16, true, false, Scoring::kSoftmax, 1, 1},
                          {3, 16, 4, 4104, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
                          {2, 16, 4, 256, DType::kF8E4M3, true, true, Scoring::kSoftmax, 1, 1},
                          {9, 16, 4, 512, DType::kBF16, true, true, Scoring::kSoftmax, 1, 1},
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
                 norm = vector(c.width, seed + 7, 0.2F, 1), bias = vector(outputs, seed + 8), normed = poisoned({c.rows, c.width}),
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
