// Parity of everything that works row by row: moves, norms, gates, elementwise ops.
#include "cuda/parity.h"

namespace strata::testing {
namespace {

class RowsParity : public Parity {};
STRATA_PARITY(RowsParity);


TEST_P(RowsParity, Elementwise) {
  for (const auto& [rows, columns, offset] : {std::tuple{1, 37, 0}, {5, 64, 8}, {33, 1000, 3}, {3, 2048, 0}}) {
    const Pair x = activations({rows, columns + 2 * offset}, 1), y = activations({rows, columns}, 2), one = activations({rows, 1}, 3);
    const Pair part = x.columns(offset, columns);
    cpu().add(part.cpu, y.cpu, 0.7F);
    gpu().add(part.gpu, y.gpu, 0.7F);
    EXPECT_LT(distance(x), tolerance()) << "add " << columns;
    cpu().multiply(part.cpu, y.cpu);
    gpu().multiply(part.gpu, y.gpu);
    cpu().multiply(part.cpu, one.cpu);
    gpu().multiply(part.gpu, one.gpu);
    EXPECT_LT(distance(x), 2 * tolerance()) << "multiply " << columns;
    cpu().scale(part.cpu, 1.5F, 3);
    gpu().scale(part.gpu, 1.5F, 3);
    EXPECT_LT(distance(x), 2 * tolerance()) << "scale " << columns;
  }
}

TEST_P(RowsParity, Activations) {
  for (const Activation a : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kRelu2, Activation::kSigmoid,
                             Activation::kNone}) {
    const Pair x = activations({7, 129}, 4, 2);
    cpu().activate(x.cpu, a);
    gpu().activate(x.gpu, a);
    EXPECT_LT(distance(x), tolerance()) << static_cast<int>(a);
  }
  for (const Activation a : {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSwiGlu}) {
    for (const int columns : {24, 61, 512}) {
      const Pair x = activations({9, 2 * columns}, 5, 2), out = poisoned({9, columns});
      cpu().glu(out.cpu, x.cpu, a, 1.5F);
      gpu().glu(out.gpu, x.gpu, a, 1.5F);
      EXPECT_LT(distance(out), tolerance()) << static_cast<int>(a) << " " << columns;
    }
  }
}

TEST_P(RowsParity, Norms) {
  for (const auto& [rows, columns] : {std::pair{1, 37}, {5, 256}, {3, 1000}, {2, 2048}, {2, 9001}}) {
    const Pair x = activations({rows, columns + 8}, 6), weight = vector(columns, 7, 0.2F, 1), delta = activations({rows, columns}, 8);
    const Pair part = x.columns(8, columns), out = poisoned({rows, columns});
    cpu().rms_norm(out.cpu, part.cpu, {}, 1e-6F);
    gpu().rms_norm(out.gpu, part.gpu, {}, 1e-6F);
    EXPECT_LT(distance(out), tolerance()) << columns;
    cpu().add_rms_norm(out.cpu, part.cpu, delta.cpu, 0.5F, weight.cpu, 1e-5F);
    gpu().add_rms_norm(out.gpu, part.gpu, delta.gpu, 0.5F, weight.gpu, 1e-5F);
    EXPECT_LT(distance(out), tolerance()) << columns;
    EXPECT_LT(distance(x), tolerance()) << columns;
  }
}

TEST_P(RowsParity, GatedNorm) {
  for (const bool gate_first : {false, true}) {
    for (const auto& [heads, dim, group, own] : {std::tuple{3, 20, 0, false}, {32, 128, 0, false}, {1, 4096, 512, true}, {2, 48, 24, true}}) {
      const Pair x = activations({5, heads * dim}, 9), gate = activations({5, heads * dim}, 10), out = poisoned({5, heads * dim});
      const Pair weight = vector(own ? heads * dim : dim, 11);
      const Shape shape{5, heads, dim};
      GatedNormArgs args{.out = out.cpu.reshape(shape), .x = x.cpu.reshape(shape), .gate = gate.cpu.reshape(shape),
                         .weight = weight.cpu, .eps = 1e-6F, .gate_first = gate_first, .group = group};
      cpu().gated_norm(args);
      args.out = out.gpu.reshape(shape), args.x = x.gpu.reshape(shape), args.gate = gate.gpu.reshape(shape), args.weight = weight.gpu;
      gpu().gated_norm(args);
      EXPECT_LT(distance(out), tolerance()) << heads << "x" << dim;
    }
  }
}

TEST_P(RowsParity, Moves) {
  for (const int columns : {24, 37, 2048}) {
    const Pair x = activations({11, columns}, 12), rows = ints({3, 10, 3, 0}, {4}), out = poisoned({4, columns});
    cpu().gather_rows(out.cpu, x.cpu, rows.cpu);
    gpu().gather_rows(out.gpu, x.gpu, rows.gpu);
    EXPECT_EQ(distance(out), 0);
    const Pair saves = ints({2, 5, 7, 1, 9, 0}, {3, 2}), state = poisoned({6, columns}, DType::kF32);
    cpu().save_rows(x.cpu, saves.cpu, state.cpu);
    gpu().save_rows(x.gpu, saves.gpu, state.gpu);
    EXPECT_EQ(distance(state), 0);
    const Pair left = activations({5, 19}, 13), right = activations({5, columns}, 14), joined = poisoned({5, 19 + columns});
    cpu().concat(joined.cpu, left.cpu, right.cpu);
    gpu().concat(joined.gpu, left.gpu, right.gpu);
    EXPECT_EQ(distance(joined), 0);
  }
}

TEST_P(RowsParity, Embed) {
  const Pair tokens = ints({0, 40, 7, 40}, {4});
  for (const int columns : {24, 37, 256}) {
    const HostTensor table = random_tensor({41, columns}, 15);
    HostTensor narrow({41, columns}, DType::kBF16);
    for (std::int64_t i = 0; i < table.elements(); ++i) narrow.view().data<BFloat16>()[i] = to_bfloat16(table.f32()[i]);
    const WeightPair w = weight(HostMatrix(narrow));
    const Pair out = poisoned({4, columns});
    cpu().embed(out.cpu, tokens.cpu, w.cpu, 1.25F);
    gpu().embed(out.gpu, tokens.gpu, w.gpu, 1.25F);
    EXPECT_LT(distance(out), tolerance()) << columns;
  }
}

}  // namespace
}  // namespace strata::testing
