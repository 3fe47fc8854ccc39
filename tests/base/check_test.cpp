#include "base/check.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/result.h"

namespace strata {
namespace {

TEST(CheckDeathTest, NamesTheMismatchAndThePlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int q = 128, k = 64;
  EXPECT_DEATH(STRATA_CHECK(q == k, "head_dim: q {}, k {}", q, k),
               "check_test.cpp:[0-9]+: head_dim: q 128, k 64 \\(q == k\\)");
}

TEST(Error, FormatsItsText) { EXPECT_STREQ(Error("file {}: {} bytes", "a.bin", 3).what(), "file a.bin: 3 bytes"); }

TEST(Result, CarriesTheReasonAndTheField) {
  const Result<int> bad = bad_request("top_p must be in [0, 1]", "top_p");
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().param, "top_p");
  EXPECT_EQ(Result<int>(3).value(), 3);
}

}  // namespace
}  // namespace strata
