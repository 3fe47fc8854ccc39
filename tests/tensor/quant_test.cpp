#include "tensor/quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace strata {
namespace {

constexpr DType kBlockTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,   DType::kQ2_K,  DType::kQ3_K,
                                 DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

std::vector<char> file(const std::string& name) {
  std::ifstream in(std::string(STRATA_SOURCE_DIR) + "/tests/golden_quant/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Quant : public testing::TestWithParam<DType> {};

TEST_P(Quant, MeansWhatAnIndependentImplementationReads) {
  const std::string type(name(GetParam()));
  const auto blocks = file(type + ".blocks"), values = file(type + ".f32");
  ASSERT_EQ(blocks.size(), bytes_of(GetParam(), 1024));
  ASSERT_EQ(values.size(), 1024 * sizeof(float));
  std::vector<float> mine(1024), golden(1024);
  std::memcpy(golden.data(), values.data(), values.size());
  dequantize_row(GetParam(), reinterpret_cast<const std::byte*>(blocks.data()), 1024, mine.data());
  for (std::size_t i = 0; i < 1024; ++i) ASSERT_EQ(mine[i], golden[i]) << i;
}

TEST_P(Quant, RowsSurviveAsWellAsTheirBitsAllow) {
  // Root mean square error of unit normal values, by type, with a little room.
  const auto bound = [](DType type) {
    switch (type) {
      case DType::kQ8_0: return 0.0056;
      case DType::kQ6_K: return 0.0185;
      case DType::kQ5_K: case DType::kQ5_1: case DType::kQ5_0: return 0.043;
      case DType::kQ3_K: return 0.16;
      case DType::kQ2_K: return 0.285;
      case DType::kMXFP4: return 0.115;
      default: return 0.087;
    }
  };
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(8192), y(8192);
  for (float& v : x) v = normal(random);
  std::vector<std::byte> blocks(bytes_of(GetParam(), 8192));
  quantize_row(GetParam(), x.data(), 8192, blocks.data());
  dequantize_row(GetParam(), blocks.data(), 8192, y.data());
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) error += (x[i] - y[i]) * (x[i] - y[i]);
  error = std::sqrt(error / 8192);
  EXPECT_LT(error, bound(GetParam()));
  EXPECT_GT(error, bound(GetParam()) / 2);
}

TEST_P(Quant, ExtremesStayFinite) {
  for (const float size : {0.0F, 1e-38F, 1e-6F, 1.0F, 3e4F}) {
    std::vector<float> x(512, size), y(512);
    for (std::size_t i = 0; i < 512; i += 3) x[i] = -size;
    x[5] = 0;
    std::vector<std::byte> blocks(bytes_of(GetParam(), 512));
    quantize_row(GetParam(), x.data(), 512, blocks.data());
    dequantize_row(GetParam(), blocks.data(), 512, y.data());
    for (std::size_t i = 0; i < 512; ++i) ASSERT_LE(std::abs(y[i] - x[i]), 0.7F * size + 4e-7F) << size << " " << i;
  }
}

TEST_P(Quant, CodesAreTheSameValues) {
  const auto blocks = file(std::string(name(GetParam())) + ".blocks");
  const int elements = info(GetParam()).block_elements, group = quant_group(GetParam());
  std::vector<float> row(static_cast<std::size_t>(elements));
  BlockCodes c;
  const auto* block = reinterpret_cast<const std::byte*>(blocks.data());
  unpack_block(GetParam(), block, c);
  dequantize_row(GetParam(), block, elements, row.data());
  for (int i = 0; i < elements; ++i) {
    const auto g = static_cast<std::size_t>(i / group), e = static_cast<std::size_t>(i);
    EXPECT_EQ(row[e], c.scale[g] * static_cast<float>(c.code[e]) + c.offset[g]);
    EXPECT_TRUE(quant_has_offset(GetParam()) || c.offset[g] == 0);
  }
}

TEST(QuantDeath, PartBlocksAndPlainTypes) {
  float x[32] = {};
  std::byte b[256];
  EXPECT_DEATH(quantize_row(DType::kQ8_0, x, 31, b), "31 elements are not whole q8_0 blocks");
  EXPECT_DEATH(quantize_row(DType::kF16, x, 32, b), "f16 is no block type");
  BlockCodes c;
  EXPECT_DEATH(unpack_block(DType::kBF16, b, c), "bf16 is no block type");
}

INSTANTIATE_TEST_SUITE_P(Types, Quant, testing::ValuesIn(kBlockTypes), [](const auto& p) { return std::string(name(p.param)); });

// NVFP4 from its definition, in double: a sign, two bits of exponent, one of mantissa; times an E4M3 scale.
TEST(Nvfp4Blocks, MeanWhatTheirDefinitionSays) {
  const auto e2m1 = [](int code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const double size = exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + mantissa * 0.5, exponent - 1);
    return (code & 8) != 0 ? -size : size;
  };
  const auto e4m3 = [](int bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (bits & 128) != 0 ? -size : size;
  };
  ASSERT_EQ(bytes_of(DType::kNVFP4, 32), 18U);
  for (int scale = 0; scale < 256; ++scale) {
    if ((scale & 127) == 127) continue;  // no number
    std::byte block[9];
    for (int i = 0; i < 8; ++i) block[i] = static_cast<std::byte>(2 * i | (2 * i + 1) << 4);
    block[8] = static_cast<std::byte>(scale);
    float values[16];
    dequantize_row(DType::kNVFP4, block, 16, values);
    for (int i = 0; i < 16; ++i) ASSERT_EQ(values[i], e2m1(i) * e4m3(scale)) << scale << " " << i;
  }
}

TEST(Nvfp4Blocks, RowsSurviveAsWellAsTheirBitsAllow) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(8192), y(8192);
  for (float& v : x) v = normal(random);
  std::vector<std::byte> blocks(bytes_of(DType::kNVFP4, 8192));
  quantize_row(DType::kNVFP4, x.data(), 8192, blocks.data());
  dequantize_row(DType::kNVFP4, blocks.data(), 8192, y.data());
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) error += std::pow(x[i] - y[i], 2);
  EXPECT_LT(std::sqrt(error / 8192), 0.095);
  const std::vector<float> zeros(16), large(16, 1e6F);
  quantize_row(DType::kNVFP4, zeros.data(), 16, blocks.data());
  dequantize_row(DType::kNVFP4, blocks.data(), 16, y.data());
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 16), zeros);
  quantize_row(DType::kNVFP4, large.data(), 16, blocks.data());  // the largest there is
  dequantize_row(DType::kNVFP4, blocks.data(), 16, y.data());
  EXPECT_EQ(y[0], 6 * 448.0F);
}

}  // namespace
}  // namespace strata
