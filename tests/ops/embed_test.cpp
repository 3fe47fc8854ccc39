#include <gtest/gtest.h>

#include "ops/cpu/cpu_ops.h"
#include "ops/test_matrix.h"

namespace strata {
namespace {

using test::get;
using test::Owned;
using test::random_matrix;

TEST(Embed, ReadsRowsOfThePackedTable) {
  CpuOps ops({.threads = 2});
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3}) {
    for (const std::int64_t width : {1, 3, 64, 257}) {
      const Owned table = random_matrix(type, 45, width, 1);
      const Weight packed = ops.load(HostMatrix(table.tensor), {});
      Owned tokens(DType::kI32, {7});
      const int ids[] = {0, 15, 16, 44, 31, 0, 43};
      std::copy_n(ids, 7, tokens.tensor.data<std::int32_t>());
      Owned out(DType::kF32, {7, width});
      ops.embed(out.tensor, tokens.tensor, packed, 1.5F);
      for (int t = 0; t < 7; ++t) {
        for (std::int64_t i = 0; i < width; ++i) {
          ASSERT_EQ(out.row(t)[i], static_cast<float>(get(table.tensor, ids[t], i)) * 1.5F) << name(type) << " " << t << " " << i;
        }
      }
    }
  }
}

TEST(EmbedDeath, ATokenBeyondTheVocabulary) {
  CpuOps ops({.threads = 1});
  const Owned table = random_matrix(DType::kF32, 4, 3, 1);
  const Weight packed = ops.load(HostMatrix(table.tensor), {});
  Owned tokens(DType::kI32, {1}), out(DType::kF32, {1, 3});
  tokens.tensor.data<std::int32_t>()[0] = 4;
  EXPECT_DEATH(ops.embed(out.tensor, tokens.tensor, packed, 1), "token 4 of a vocabulary of 4");
}

}  // namespace
}  // namespace strata
