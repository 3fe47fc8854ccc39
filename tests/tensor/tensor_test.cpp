#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strata {
namespace {

TEST(DType, SixteenBitTypesRoundTripEveryPattern) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float b = to_float(BFloat16{bits}), h = half_to_float(bits);
    if (!std::isnan(b)) {
      EXPECT_EQ(to_bfloat16(b).bits, bits);
    }
    if (!std::isnan(h)) {
      EXPECT_EQ(float_to_half(h), bits);
    }
  }
}

TEST(DType, HalfAgreesWithTheCompilers) {
  for (int i = 0; i < 200000; ++i) {
    const float x = std::ldexp(1.0F + static_cast<float>(i % 9973) / 9973.0F, i % 50 - 30);
    EXPECT_EQ(half_to_float(float_to_half(x)), static_cast<float>(static_cast<_Float16>(x))) << x;
  }
}

TEST(DType, F8RoundTripsAndRoundsToNearest) {
  for (int i = 0; i < 256; ++i) {
    const float f = f8e4m3_to_float(static_cast<std::uint8_t>(i));
    if (!std::isnan(f)) {
      EXPECT_EQ(float_to_f8e4m3(f), i);
    }
  }
  EXPECT_EQ(f8e4m3_to_float(0x7e), 448.0F);
  EXPECT_EQ(f8e4m3_to_float(float_to_f8e4m3(1e9F)), 448.0F);
  for (int i = 0; i < 9800; ++i) {  // nearest, up to 444: no other value is closer
    const float x = static_cast<float>(i) * 0.0453F;
    const float error = std::fabs(f8e4m3_to_float(float_to_f8e4m3(x)) - x);
    for (int j = 0; j < 127; ++j) {
      ASSERT_LE(error, std::fabs(f8e4m3_to_float(static_cast<std::uint8_t>(j)) - x) + 1e-6F) << x;
    }
  }
}

TEST(Tensor, ColumnsAreAViewThatKeepsTheStride) {
  std::vector<float> v(12);
  for (int i = 0; i < 12; ++i) v[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const Tensor t(v.data(), DType::kF32, {3, 4});
  const Tensor c = t.columns(1, 2);
  EXPECT_EQ(c.stride(), 4);
  EXPECT_FALSE(c.contiguous());
  EXPECT_EQ(c.row<float>(2)[1], 10.0F);
  EXPECT_EQ(c.reshape({3, 2, 1}).row<float>(1)[0], 5.0F);
  EXPECT_EQ(t.rows_from(1, 2).row<float>(1)[3], 11.0F);
  EXPECT_EQ(t.reshape({4, 3}).row<float>(1)[0], 3.0F);
}

TEST(TensorDeathTest, NamesABadView) {
  std::vector<float> v(6);
  const Tensor t(v.data(), DType::kF32, {2, 3});
  EXPECT_DEATH((void)t.reshape({4, 2}), "reshape \\[2, 3\\] to \\[4, 2\\]");
  EXPECT_DEATH((void)t.columns(0, 2).reshape({4}), "strided view");
  EXPECT_DEATH((void)t.data<std::uint16_t>(), "f32 read as 2 bytes");
}

TEST(Buffer, IsZeroedAndAligned) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{5} << 20}) {
    const Buffer b = Buffer::host(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 64, 0U);
    for (std::size_t i = 0; i < bytes; i += 997) EXPECT_EQ(b.data()[i], std::byte{0});
  }
}

}  // namespace
}  // namespace strata
