// Parity of products with weights of 4 bits, and how those lie on the device.
#include "base/error.h"
#include "cuda/parity.h"
#include "ops/cuda/four_bit_pack.h"
#include "tensor/quant.h"

namespace strata::testing {
namespace {

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kMXFP4, DType::kNVFP4};

// Pieces of random blocks, those of NVFP4 with a factor each.
struct Blocks {
  std::deque<HostTensor> owned;
  HostMatrix matrix;

  void add(DType dtype, std::int64_t rows, std::int64_t inputs, unsigned seed) {
    HostTensor values = random_tensor({rows, inputs}, seed), &blocks = owned.emplace_back(Shape{rows, inputs}, dtype);
    const float factor = dtype == DType::kNVFP4 ? 0.003F * static_cast<float>(1 + seed % 7) : 1;
    HostPiece piece{blocks.view(), {}, false};
    if (factor != 1) piece.scales = owned.emplace_back(filled({1, 1}, factor)).view();
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = values.view().row<float>(r);
      for (std::int64_t k = 0; k < inputs; ++k) row[k] *= (k / 16 % 5 == 4 ? 0.1F : 1) / factor;  // groups differ
      if (r % 5 == 3) std::fill(row, row + 16, 0.0F);
      quantize_row(dtype, row, inputs, piece.data.raw() + bytes_of(dtype, r * inputs));
    }
    matrix.pieces.push_back(piece);
  }
};

Blocks random_blocks(DType dtype, const std::vector<int>& piece_rows, std::int64_t inputs, unsigned seed, int experts = 0) {
  Blocks b;
  b.matrix.experts = experts;
  for (const int rows : piece_rows) b.add(dtype, rows, inputs, seed++);
  return b;
}

class FourBitParity : public Parity {
 protected:
  // What the matrix means, in f32, and what the GPU keeps of it.
  WeightPair weight(const Blocks& b) { return {cpu().load(b.matrix, DType::kF32), gpu().load(b.matrix, {})}; }
};
STRATA_PARITY(FourBitParity);

TEST_P(FourBitParity, Linear) {
  struct Case {
    int rows, outputs, inputs, gap;  // gap: elements between rows of x
    bool bias, f32_out;
  };
  std::vector<Case> cases = {{1, 7003, 160, 8, false, false}, {3, 129, 96, 5, true, true},   {8, 48, 4128, 8, false, true}, {9, 1, 256, 8, true, false},
                             {16, 6500, 96, 8, true, false}, {12, 140, 2208, 8, false, false}, {64, 200, 1056, 8, true, false}, {100, 130, 416, 8, false, true}, {300, 530, 96, 0, true, false}};
  for (int rows = 1; rows <= 20; ++rows) cases.push_back({rows, 90 + 7 * rows, 32 * (rows + 3), 8, rows % 2 == 0, rows % 3 == 0});
  unsigned seed = 100;
  for (const DType dtype : kTypes) {
    for (const Case& c : cases) {
      const Blocks b = random_blocks(dtype, {c.outputs}, c.inputs, seed += 10);
      const WeightPair w = weight(b);
      if (bf16()) {
        EXPECT_EQ(w.gpu.dtype, dtype);
      }
      const Pair x = activations({c.rows, c.inputs + c.gap}, seed + 1), bias = vector(c.outputs, seed + 2);
      const Pair out = c.f32_out ? poisoned({c.rows, c.outputs + 5}, DType::kF32) : poisoned({c.rows, c.outputs + 5});
      const Pair part = out.columns(0, c.outputs), in = x.columns(0, c.inputs);
      cpu().linear(part.cpu, in.cpu, w.cpu, c.bias ? bias.cpu : Tensor());
      gpu().linear(part.gpu, in.gpu, w.gpu, c.bias ? bias.gpu : Tensor());
      EXPECT_LT(distance(out), tolerance()) << name(dtype) << " " << c.rows << "x" << c.outputs << "x" << c.inputs;
    }
  }
}

// Rows of x that are one 1 give the weights themselves, to the bit.
TEST_P(FourBitParity, WeightsAreExact) {
  constexpr int kOutputs = 37, kInputs = 352;
  for (const DType dtype : kTypes) {
    Blocks b = random_blocks(dtype, {kOutputs}, kInputs, 7);
    std::byte* blocks = b.matrix.pieces[0].data.raw();
    if (dtype == DType::kNVFP4) {  // every code, and every scale that is a number: zeros, small and negative ones too
      for (int i = 0; i < kOutputs * kInputs / 16; ++i) {
        for (int j = 0; j < 8; ++j) blocks[i * 9 + j] = static_cast<std::byte>((2 * j + i) % 16 | (2 * j + 1 + i) % 16 << 4);
        blocks[i * 9 + 8] = static_cast<std::byte>(i % 128 == 127 ? 0 : i);
      }
    }
    if (dtype == DType::kMXFP4) {  // exponents up to 31 apart
      for (int i = 0; i < kOutputs * kInputs / 32; ++i) blocks[i * 17] = static_cast<std::byte>(100 + i % (kInputs / 32) * 3 + i / (kInputs / 32) % 2);
    }
    const WeightPair w = weight(b);
    for (int k0 = 0; k0 < kInputs; k0 += 11) {
      HostTensor ones = filled({11, kInputs}, 0);
      for (int i = 0; i < 11; ++i) ones.view().row<float>(i)[k0 + i] = 1;
      const Pair x = both(std::move(ones), GetParam()), out = poisoned({11, kOutputs}, DType::kF32);
      cpu().linear(out.cpu, x.cpu, w.cpu, {});
      gpu().linear(out.gpu, x.gpu, w.gpu, {});
      ASSERT_EQ(distance(out), 0) << name(dtype) << " from input " << k0;
    }
  }
}

// Rows of MXFP4 whose exponents lie too far apart, and experts of odd sizes, are kept in bf16.
TEST_P(FourBitParity, WhatDoesNotFitIsWidened) {
  Blocks b = random_blocks(DType::kMXFP4, {40}, 96, 9);
  std::byte* blocks = b.matrix.pieces[0].data.raw();
  blocks[17] = static_cast<std::byte>(static_cast<int>(blocks[0]) + 33);
  const WeightPair w = weight(b);
  EXPECT_EQ(w.gpu.dtype, bf16() ? DType::kBF16 : DType::kF32);
  const Pair x = activations({5, 96}, 10), out = poisoned({5, 40});
  cpu().linear(out.cpu, x.cpu, w.cpu, {});
  gpu().linear(out.gpu, x.gpu, w.gpu, {});
  EXPECT_LT(distance(out), tolerance());
  EXPECT_EQ(weight(random_blocks(DType::kQ4_0, {20, 20}, 64, 11, 2)).gpu.dtype, bf16() ? DType::kBF16 : DType::kF32);
}

// A plain matrix that is asked for in 4 bits is quantised as on the CPU.
TEST_P(FourBitParity, QuantisedAtLoad) {
  const HostTensor plain = random_tensor({48, 96}, 12);
  const HostMatrix matrix(plain.view());
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kMXFP4}) {
    HostTensor blocks({48, 96}, dtype);
    quantize_row(dtype, plain.view().row<float>(0), 48 * 96, blocks.view().raw());
    const WeightPair w{cpu().load(HostMatrix(blocks.view()), DType::kF32), gpu().load(matrix, dtype)};
    if (bf16()) {
      EXPECT_EQ(w.gpu.dtype, dtype);
    }
    const Pair x = activations({5, 96}, 13), out = poisoned({5, 48});
    cpu().linear(out.cpu, x.cpu, w.cpu, {});
    gpu().linear(out.gpu, x.gpu, w.gpu, {});
    if (bf16()) {  // f32 is kept as it is
      EXPECT_LT(distance(out), tolerance()) << name(dtype);
    }
  }
  if (bf16()) {
    EXPECT_THROW(gpu().load(matrix, DType::kNVFP4), Error);
  }
}

TEST_P(FourBitParity, Glu) {
  struct Case {
    int rows, half, inputs;
    Activation activation;
    bool bias;
  };
  unsigned seed = 3000;
  for (const DType dtype : kTypes) {
    for (const Case& c : {Case{1, 64, 96, Activation::kSilu, false}, {7, 48, 288, Activation::kGeluTanh, true}, {13, 200, 544, Activation::kSilu, true},
                          {20, 37, 64, Activation::kSilu, false}, {40, 144, 512, Activation::kSilu, false}, {70, 512, 160, Activation::kClampedSwiGlu, true},
                          {300, 1024, 96, Activation::kSilu, true}}) {
      const Blocks b = random_blocks(dtype, {c.half, c.half}, c.inputs, seed += 10);
      const WeightPair w = weight(b);
      const Pair x = activations({c.rows, c.inputs}, seed + 1), bias = vector(2 * c.half, seed + 2), out = poisoned({c.rows, c.half + 8});
      const Pair part = out.columns(0, c.half);
      cpu().linear_glu(part.cpu, x.cpu, w.cpu, c.bias ? bias.cpu : Tensor(), c.activation, 7);
      gpu().linear_glu(part.gpu, x.gpu, w.gpu, c.bias ? bias.gpu : Tensor(), c.activation, 7);
      EXPECT_LT(distance(out), tolerance()) << name(dtype) << " " << c.rows << "x" << c.half << "x" << c.inputs;
    }
  }
}

// A matrix of which some rows are bf16 keeps the others in 4 bits; in one launch for few rows.
TEST_P(FourBitParity, MixedPieces) {
  unsigned seed = 5300;
  for (const DType dtype : kTypes) {
    for (const auto& [upper, lower, inputs] : {std::tuple{128, 33, 288}, {7424, 5, 96}, {128, 64, 2048}}) {
      Blocks b = random_blocks(dtype, {upper / 2, upper / 2}, inputs, seed += 10);
      b.owned.push_back(random_tensor({lower, inputs}, seed + 1));
      HostTensor& gates = b.owned.emplace_back(Shape{lower, inputs}, DType::kBF16);
      for (std::int64_t i = 0; i < lower * inputs; ++i)
        gates.view().data<BFloat16>()[i] = to_bfloat16(b.owned[b.owned.size() - 2].view().data<float>()[i]);
      b.matrix.pieces.push_back({gates.view(), {}, false});
      const WeightPair w = weight(b);
      EXPECT_EQ(w.gpu.parts.size(), bf16() ? 2U : 0U);
      const Pair bias = vector(upper + lower, seed + 2);
      for (const int rows : {1, 8, 9, 16, 17}) {
        const Pair x = activations({rows, inputs}, seed + 3), out = poisoned({rows, upper + lower + 3}), part = out.columns(0, upper + lower);
        cpu().linear(part.cpu, x.cpu, w.cpu, rows == 9 ? Tensor() : bias.cpu);
        gpu().linear(part.gpu, x.gpu, w.gpu, rows == 9 ? Tensor() : bias.gpu);
        EXPECT_LT(distance(out), tolerance()) << name(dtype) << " " << upper << " " << rows;
      }
    }
  }
}

TEST_P(FourBitParity, Experts) {
  unsigned seed = 6000;
  for (const DType dtype : kTypes) {
    for (const auto& [rows, experts, k, outputs, inputs] : {std::tuple{1, 16, 4, 192, 160}, {9, 8, 3, 48, 96}, {20, 33, 5, 112, 288}, {70, 8, 2, 256, 1056}, {64, 64, 4, 304, 96},
                                                            {400, 4, 2, 320, 416}, {150, 256, 2, 96, 96}}) {
      seed += 10;
      HostTensor scores = random_tensor({rows, experts}, seed);
      for (int r = 0; r < rows; ++r) scores.view().row<float>(r)[experts / 3] += 1.5F;  // one expert gets many
      const Pair logits = both(std::move(scores), DType::kF32);
      const Routing on_cpu = cpu().route({.logits = logits.cpu}, k), on_gpu = gpu().route({.logits = logits.gpu}, k);
      const Blocks b = random_blocks(dtype, std::vector<int>(static_cast<std::size_t>(experts), outputs), inputs, seed + 1, experts);
      const WeightPair w = weight(b);
      const Pair x = activations({rows, inputs}, seed + 2), entries = activations({rows * k, inputs}, seed + 3), out = poisoned({rows * k, outputs}), half = poisoned({rows * k, outputs / 2}),
                 bias = both(random_tensor({experts, outputs}, seed + 4), DType::kF32);
      for (const Pair& in : {x, entries}) {
        cpu().expert_linear(out.cpu, in.cpu, on_cpu, w.cpu, bias.cpu);
        gpu().expert_linear(out.gpu, in.gpu, on_gpu, w.gpu, bias.gpu);
        EXPECT_LT(distance(out), tolerance()) << name(dtype) << " experts " << rows << " of " << experts;
      }
      if (outputs % 32 != 0) continue;
      cpu().expert_linear_glu(half.cpu, x.cpu, on_cpu, w.cpu, {}, Activation::kSilu, 0);
      gpu().expert_linear_glu(half.gpu, x.gpu, on_gpu, w.gpu, {}, Activation::kSilu, 0);
      EXPECT_LT(distance(half), tolerance()) << name(dtype) << " experts with GLU " << rows << " of " << experts;
    }
  }
}

TEST_P(FourBitParity, Moe) {
  struct Case {
    int rows, experts, k, width, hidden, shared;  // shared 0 = none
    bool bias;
  };
  unsigned seed = 7000;
  for (const DType dtype : kTypes) {
    for (const Case& c : {Case{1, 16, 4, 64, 32, 96, false}, {1, 4, 3, 1056, 512, 512, false}, {3, 8, 3, 224, 160, 0, true}, {8, 12, 8, 288, 96, 224, true},
                          {9, 33, 5, 128, 96, 96, true}, {2, 70, 32, 64, 32, 32, false}, {21, 16, 4, 128, 64, 64, false}}) {
      seed += 30;
      const auto matrix = [&](int outputs, int inputs, unsigned at, int experts) {
        return random_blocks(dtype, std::vector<int>(static_cast<std::size_t>(std::max(experts, 1)), outputs), inputs, at, experts);
      };
      const int shared = std::max(c.shared, 32);
      const Blocks in = matrix(2 * c.hidden, c.width, seed, c.experts), down = matrix(c.width, c.hidden, seed + 1, c.experts), shared_in = matrix(2 * shared, c.width, seed + 2, 0),
                   shared_down = matrix(c.width, shared, seed + 3, 0);
      const WeightPair win = weight(in), wdown = weight(down), wshared_in = weight(shared_in), wshared_down = weight(shared_down);
      const Pair logits = both(random_tensor({c.rows, c.experts + 1}, seed + 4), DType::kF32), x = activations({c.rows, c.width}, seed + 5), out = poisoned({c.rows, c.width + 8}),
                 bin = vector(c.experts * 2 * c.hidden, seed + 6), bdown = vector(c.experts * c.width, seed + 7), bshared_in = vector(2 * shared, seed + 8), bshared_down = vector(c.width, seed + 9);
      const auto run = [&](Ops& ops, auto side) {
        const auto vector_of = [&](const Pair& p) { return c.bias ? side(p) : Tensor(); };
        MoeArgs args{.out = side(out).columns(0, c.width), .x = side(x), .route = {.logits = side(logits).columns(0, c.experts)}, .k = c.k, .in = &side(win), .down = &side(wdown),
                     .in_bias = vector_of(bin), .down_bias = vector_of(bdown), .activation = Activation::kSilu, .limit = 1};
        if (c.shared > 0) {
          args.shared_in = &side(wshared_in), args.shared_down = &side(wshared_down), args.shared_in_bias = vector_of(bshared_in), args.shared_down_bias = vector_of(bshared_down);
          args.shared_gate = side(logits).columns(c.experts, 1);
        }
        ops.moe(args);
      };
      run(cpu(), [](const auto& p) -> const auto& { return p.cpu; });
      run(gpu(), [](const auto& p) -> const auto& { return p.gpu; });
      EXPECT_LT(distance(out), 2 * tolerance()) << name(dtype) << " " << c.rows << " of " << c.experts << ", " << c.width << " x " << c.hidden;
    }
  }
}

TEST_P(FourBitParity, Embed) {
  for (const DType dtype : kTypes) {
    const WeightPair table = weight(random_blocks(dtype, {45}, 288, 8000));
    const Pair tokens = ints({0, 44, 17, 17}, {4}), out = poisoned({4, 288});
    cpu().embed(out.cpu, tokens.cpu, table.cpu, 2);
    gpu().embed(out.gpu, tokens.gpu, table.gpu, 2);
    EXPECT_LT(distance(out), tolerance()) << name(dtype);
  }
}

// The bits of a packed matrix, read as kernels do: no device needed.
TEST(FourBitBlocks, HoldWhatWasPacked) {
  constexpr int kOutputs = 21, kInputs = 160;
  for (const DType dtype : kTypes) {
    const Blocks b = random_blocks(dtype, {kOutputs}, kInputs, 77);
    const cpu::MatrixRows rows(b.matrix);
    const int elem = dtype == DType::kQ4_0 ? cuda::kElemInt4 : dtype == DType::kQ4_1 ? cuda::kElemInt4Min : cuda::kElemFp4, bytes = cuda::four_block_bytes(elem);
    std::vector<std::byte> blocks(static_cast<std::size_t>(2 * bytes));
    std::vector<float> factors(16), want(kInputs);
    for (int begin = 0; begin < kOutputs; begin += 16) {
      cuda::pack_four_bit(rows, dtype, begin, blocks.data(), factors.data());
      for (int r = 0; r < 16 && begin + r < kOutputs; ++r) {
        rows.read_f32(begin + r, want.data());
        for (int k = 0; k < kInputs; ++k) {
          const std::byte* block = blocks.data() + k / 128 * bytes;
          const int in = k % 128, i = in % 8;
          std::uint32_t word;
          std::memcpy(&word, block + cuda::four_word(r, in) * 4, 4);
          const std::byte* scale = block + cuda::four_scale(elem, r, in);
          float got = 0;
          if (elem == cuda::kElemFp4) {
            // widen_fp4: bits that are a bf16 2^126 too small, times a scale that is as much too large.
            const std::uint32_t shifted = i / 2 < 3 ? std::rotr(word, cuda::fp4_turn(i / 2)) & cuda::kFp4Pair
                                                    : (word & cuda::kFp4Rest) | (word << 8 & cuda::kFp4Exponent);
            const BFloat16 code{static_cast<std::uint16_t>(shifted >> (i % 2 * 16))}, times{static_cast<std::uint16_t>((static_cast<int>(*scale) << 4) + (223 << 7))};
            got = to_float(code) * to_float(times) * factors[static_cast<std::size_t>(r)];
            EXPECT_EQ(cuda::place_fp4(i, cuda::fp4_at(i, word)), word & cuda::place_fp4(i, 15));
          } else {
            const auto half = [](const std::byte* p) {
              std::uint16_t bits;
              std::memcpy(&bits, p, 2);
              return half_to_float(bits);
            };
            const auto code = static_cast<float>(word >> (i / 2 * 4 + i % 2 * 16) & 15);
            got = dtype == DType::kQ4_0 ? half(scale) * (code - 8) : half(scale) * code + half(scale + cuda::kFourScales);
          }
          ASSERT_EQ(got, want[static_cast<std::size_t>(k)]) << name(dtype) << " row " << begin + r << " input " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::testing
