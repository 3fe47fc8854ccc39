// Parity of linear, expert_linear, route, combine and moe.
#include <fmt/format.h>

#include <algorithm>

#include "cuda/random_weights.h"

namespace strata::testing {
namespace {

class ProductParity : public Parity {};
STRATA_PARITY(ProductParity);

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
                          {1, 7003, 136, true, false}, {16, 9001, 72, false, true}, {7, 2112, 4104, true, false}, {12, 6500, 1160, true, false},
                          {8, 2300, 2056, true, false}, {5, 4240, 1032, false, true}, {4, 2100, 6144, true, false}, {2, 31, 17408, false, false},
                          {1, 2113, 2048, true, true}}) {
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

// Rows by themselves and among others have the same bits, and an output whose weights are no numbers (bf16: in f8 those are none) spoils
// no other: where rows end within what a warp reads at once, and a block goes through several tiles of outputs.
TEST_P(ProductParity, FewRowsAndOutputsAreIndependent) {
  constexpr int kRows = 8, kSpoilt = 3;
  unsigned seed = 9000;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    for (const auto& [outputs, inputs] : {std::pair{4500, 1032}, {2500, 2056}, {40, 6152}, {17, 4608}, {2200, 24}}) {
      const Matrix m = random_weights(dtype, {outputs}, inputs, seed += 10);
      const bool spoilt = dtype == DType::kBF16;
      for (int k = 0; spoilt && k < inputs; ++k) test::put(m.matrix.pieces[0].data, kSpoilt, k, kNan);
      const WeightPair w = weight(m.matrix);
      const Pair x = activations({kRows, inputs}, seed + 1), out = poisoned({kRows, outputs});
      cpu().linear(out.cpu, x.cpu, w.cpu, {});
      gpu().linear(out.gpu, x.gpu, w.gpu, {});
      const std::string what = std::string(name(dtype)) + " " + std::to_string(outputs) + "x" + std::to_string(inputs);
      EXPECT_LT(distance(out), tolerance()) << what;
      const std::vector<float> all = fetch(out.gpu);
      for (int r = 0; r < kRows; r += 3) {
        const Pair one = poisoned({1, outputs});
        gpu().linear(one.gpu, x.gpu.rows_from(r, 1), w.gpu, {});
        const std::vector<float> got = fetch(one.gpu);
        for (int n = 0; n < outputs; ++n) {
          const float among = all[static_cast<std::size_t>(r * outputs + n)], alone = got[static_cast<std::size_t>(n)];
          if (spoilt && n == kSpoilt) {
            EXPECT_TRUE(std::isnan(among) && std::isnan(alone)) << what;
          } else {
            ASSERT_EQ(among, alone) << what << ", row " << r << ", output " << n;
          }
        }
      }
    }
  }
}

TEST_P(ProductParity, StackedPieces) {
  for (const auto& rows : {std::vector<int>{128, 256, 64}, std::vector<int>{40, 130, 7}}) {
    for (const int inputs : {300, 264, 512, 2560}) {
      const Matrix m = random_weights(DType::kF8E4M3, rows, inputs, 500);
      const WeightPair w = weight(m.matrix);
      const std::int64_t outputs = w.cpu.outputs();
      const Pair x = activations({5, inputs}, 501), out = poisoned({5, outputs});
      cpu().linear(out.cpu, x.cpu, w.cpu, {});
      gpu().linear(out.gpu, x.gpu, w.gpu, {});
      EXPECT_LT(distance(out), tolerance()) << outputs << " x " << inputs;
    }
  }
}

// Quantised at load into f8 blocks: the same numbers on both sides.
TEST_P(ProductParity, QuantisedToF8) {
  if (!bf16()) GTEST_SKIP() << "f32 activations keep f32 weights";
  for (const auto& [rows, outputs, inputs] : {std::tuple{1, 7003, 264}, {5, 300, 200}, {70, 520, 384}}) {
    const Matrix m = random_weights(DType::kBF16, {outputs - 40, 40}, inputs, 700);
    const Weight on_cpu = cpu().load(m.matrix, DType::kF8E4M3), on_gpu = gpu().load(m.matrix, DType::kF8E4M3);
    EXPECT_EQ(on_gpu.dtype, DType::kF8E4M3);
    const Pair x = activations({rows, inputs}, 701), out = poisoned({rows, outputs}, DType::kF32);
    cpu().linear(out.cpu, x.cpu, on_cpu, {});
    gpu().linear(out.gpu, x.gpu, on_gpu, {});
    EXPECT_LT(distance(out), tolerance()) << rows << "x" << outputs << "x" << inputs;
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
    for (const Case& c : {Case{60, 12700, 136, false}, {1600, 2050, 264, false}, {1700, 2048, 520, true}, {50, 25600, 72, true}, {4229, 130, 264, false}}) {
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
  for (const auto& [rows, inputs] : {std::pair{33, 2048}, {70, 264}, {200, 1000}, {40, 4616}, {8, 2048}, {7, 264}}) {
    const Matrix m = random_weights(DType::kF8E4M3, {kOutputs}, inputs, seed += 10);
    for (int n = 0; n < kOutputs; ++n) test::put(m.matrix.pieces[0].data, n, kOutlier, 0);
    HostTensor values = random_tensor({rows, inputs}, seed + 1);
    for (int r = 0; r < rows; ++r) {
      float* row = values.view().row<float>(r);
      const float factor[] = {1, 0, 1e-20F, 1e20F, 1};
      for (int k = 0; k < inputs; ++k) row[k] *= factor[r % 5];
      if (r % 5 == 4) row[kOutlier] = r % 2 == 0 ? 1000.0F : -1000.0F;
    }
    const int nan_row = rows > 20 ? 15 : 5, inf_row = rows > 20 ? 20 : 6;
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
  for (const auto& [upper, lower, inputs] : {std::tuple{128, 33, 264}, {7424, 5, 136}, {384, 64, 2048}, {16, 2300, 1032}, {2300, 70, 2056}}) {
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

// Entries of one and of several chunks, with and without a few at the end; an expert that nobody chooses.
TEST_P(ProductParity, RouteSortsEntries) {
  unsigned seed = 1500;
  for (const auto& [rows, experts, k] : {std::tuple{33, 256, 8}, {128, 256, 8}, {129, 256, 8}, {3000, 256, 8}, {1000, 40, 3}, {700, 300, 5},
                                         {103, 1000, 9}, {515, 600, 1}, {2049, 17, 2}}) {
    HostTensor scores = random_tensor({rows, experts}, seed += 10);
    for (int r = 0; r < rows; ++r) scores.view().row<float>(r)[experts / 2] = -100;
    for (int r = 0; r < rows; r += 3) scores.view().row<float>(r)[experts / 3] += 3;  // one expert gets many
    const Pair logits = both(std::move(scores), DType::kF32);
    const Routing on_cpu = cpu().route({.logits = logits.cpu}, k), on_gpu = gpu().route({.logits = logits.gpu}, k);
    const std::string what = fmt::format("{} rows, {} of {}", rows, k, experts);
    EXPECT_EQ(distance({on_cpu.expert, on_gpu.expert}), 0) << what;
    EXPECT_EQ(distance({on_cpu.order, on_gpu.order}), 0) << what;
    EXPECT_EQ(distance({on_cpu.first, on_gpu.first}), 0) << what;
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
                          {5, 16, 2, 72, 44, 24, true, false, Activation::kSilu}, {21, 16, 4, 128, 64, 64, true, false, Activation::kSilu},
                          {1, 4, 1, 1040, 520, 0, false, false, Activation::kSilu}, {2, 6, 1, 520, 1032, 8, true, true, Activation::kSilu},
                          {4, 5, 3, 2200, 64, 1104, true, true, Activation::kSilu}, {8, 3, 2, 5128, 16, 24, true, false, Activation::kSilu},
                          {8, 10, 8, 136, 712, 0, false, true, Activation::kSilu}, {6, 40, 8, 512, 256, 128, false, false, Activation::kSilu},
                          {7, 64, 9, 1024, 24, 512, true, false, Activation::kSilu},
                          {4, 10, 1, 136, 24, 0, false, true, Activation::kSilu},
                          {8, 3, 2, 328, 72, 136, true, true, Activation::kSilu}, {7, 9, 8, 96, 520, 512, true, false, Activation::kSilu},
                          {1, 64, 60, 64, 136, 8, true, true, Activation::kSilu}, {1, 2, 1, 8328, 8, 8, true, false, Activation::kSilu}}) {
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
      const auto run = [&](Ops& ops, auto side, const Pair& to, int row, int count) {
        const auto vector_of = [&](const Pair& p, std::int64_t n) { return c.bias ? side(p).reshape({1, side(p).elements()}).columns(0, n) : Tensor(); };
        const auto rows_of = [&](const Pair& p) { return side(p).rows_from(row, count); };
        MoeArgs args{.out = rows_of(to).columns(0, c.width), .x = rows_of(x), .route = {.logits = rows_of(logits).columns(0, c.experts)}, .k = c.k,
                     .in = &side(win), .down = &side(wdown), .in_bias = vector_of(bin, c.experts * 2 * c.hidden),
                     .down_bias = vector_of(bdown, c.experts * c.width), .activation = c.activation, .limit = 1};
        if (c.shared > 0) {
          args.shared_in = &side(wshared_in), args.shared_down = &side(wshared_down);
          args.shared_in_bias = vector_of(bshared_in, 2 * c.shared), args.shared_down_bias = vector_of(bshared_down, c.width);
          if (c.gate) args.shared_gate = rows_of(logits).columns(c.experts, 1);
        }
        ops.moe(args);
      };
      const auto on_cpu = [](const auto& p) -> const auto& { return p.cpu; };
      const auto on_gpu = [](const auto& p) -> const auto& { return p.gpu; };
      run(cpu(), on_cpu, out, 0, c.rows);
      occupy(gpu());
      run(gpu(), on_gpu, out, 0, c.rows);
      const std::string what = fmt::format("{} {} of {}, {} x {}", name(dtype), c.rows, c.experts, c.width, c.hidden);
      EXPECT_LT(distance(out), 2 * tolerance()) << what;
      if (!bf16() || c.rows > 8 || c.rows * c.k > 64 || c.hidden % 8 != 0) continue;
      const Pair alone = poisoned({c.rows, c.width + 8});  // few rows: each as if it were alone
      occupy(gpu());
      for (int r = 0; r < c.rows; ++r) run(gpu(), on_gpu, alone, r, 1);
      std::vector<float> got[2] = {fetch(out.gpu), fetch(alone.gpu)};
      for (auto& values : got) std::replace_if(values.begin(), values.end(), [](float v) { return std::isnan(v); }, -12345.0F);
      EXPECT_EQ(got[0], got[1]) << what;
    }
  }
}

// Rows of any size in the mixture, each by itself: a row of zeros, tiny and huge ones, one with an infinity.
TEST_P(ProductParity, MoeRowsOfAnySize) {
  if (!bf16()) GTEST_SKIP() << "f32 activations are never f16";
  constexpr int kRows = 6, kExperts = 5, kChosen = 2, kWidth = 200, kHidden = 136, kShared = 24, kInfinite = 5;
  const auto matrix = [&](int outputs, int inputs, unsigned at, int experts) {
    return random_weights(DType::kF8E4M3, std::vector<int>(static_cast<std::size_t>(std::max(experts, 1)), outputs), inputs, at, experts);
  };
  const Matrix in = matrix(2 * kHidden, kWidth, 8001, kExperts), down = matrix(kWidth, kHidden, 8002, kExperts),
               shared_in = matrix(2 * kShared, kWidth, 8003, 0), shared_down = matrix(kWidth, kShared, 8004, 0);
  const WeightPair win = weight(in.matrix), wdown = weight(down.matrix), wshared_in = weight(shared_in.matrix), wshared_down = weight(shared_down.matrix);
  HostTensor values = random_tensor({kRows, kWidth}, 8005);
  for (int r = 0; r < kRows; ++r) {
    constexpr float kFactor[kRows] = {1, 0, 1e-6F, 1e8F, 1, 1};
    float* row = values.view().row<float>(r);
    for (int k = 0; k < kWidth; ++k) row[k] *= kFactor[r];
    if (r == 4) row[3] = 1e4F;
  }
  values.view().row<float>(kInfinite)[kWidth - 1] = INFINITY;
  const Pair logits = both(random_tensor({kRows, kExperts}, 8006), DType::kF32), x = both(std::move(values), DType::kBF16), out = poisoned({kRows, kWidth});
  const auto run = [&](Ops& ops, auto side) {
    ops.moe({.out = side(out), .x = side(x), .route = {.logits = side(logits)}, .k = kChosen, .in = &side(win), .down = &side(wdown),
             .shared_in = &side(wshared_in), .shared_down = &side(wshared_down), .activation = Activation::kSilu});
  };
  run(cpu(), [](const auto& p) -> const auto& { return p.cpu; });
  run(gpu(), [](const auto& p) -> const auto& { return p.gpu; });
  const std::vector<float> got = fetch(out.gpu);
  for (int r = 0; r < kRows; ++r) {
    double error = 0, norm = 0;
    for (int n = 0; n < kWidth; ++n) {
      const double value = got[static_cast<std::size_t>(r * kWidth + n)], want = out.cpu.row<float>(r)[n];
      if (r == kInfinite) {
        EXPECT_FALSE(std::isfinite(value)) << n;
        continue;
      }
      error += (value - want) * (value - want);
      norm += want * want;
    }
    EXPECT_LE(std::sqrt(error), 2 * tolerance() * std::sqrt(norm)) << r;
  }
}

}  // namespace
}  // namespace strata::testing
