#include "runtime/pool_sizes.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/batch.h"

namespace strata {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A 0.8B hybrid: 18 delta-net layers of 16 heads x 128 x 128 and a conv window; 6 attention layers of 2 heads
// x 256, in f32.
PoolNeeds hybrid() {
  PoolNeeds n;
  n.slot_bytes = std::size_t{18} * (16 * 128 * 128 + 6144 * 3) * 4;
  n.page_bytes = std::size_t{6} * kPageTokens * 2 * 2 * 256 * 4;
  n.tape_bytes = std::size_t{18} * 16 * 6208 * 4;
  n.max_context = 262144;
  n.max_sequences = 32;
  n.recurrent = true;
  return n;
}

std::size_t bytes_of(const PoolNeeds& n, const PoolSizes& s) {
  return static_cast<std::size_t>(s.pages) * n.page_bytes + static_cast<std::size_t>(s.slots) * n.slot_bytes +
         static_cast<std::size_t>(s.tapes) * n.tape_bytes;
}

TEST(PoolSizes, KeysAndValuesKeepHalfOfTheMemoryBesideManySlots) {
  PoolNeeds n = hybrid();
  for (const bool tapes : {false, true}) {
    n.tapes = tapes;
    const PoolSizes s = size_pools(n, 1024 * kMiB);
    EXPECT_GE(static_cast<std::size_t>(s.pages) * n.page_bytes,
              (tapes ? 440U : 510U) * kMiB);  // it had a single page
    EXPECT_GE(s.pages * kPageTokens, 18000);
    EXPECT_GE(s.slots, 20);
    EXPECT_LE(bytes_of(n, s), 1024 * kMiB);
    EXPECT_EQ(s.tapes > 0, tapes);
  }
}

TEST(PoolSizes, ASequenceOfTheWholeContextIsEnoughForKeysAndValues) {
  PoolNeeds n = hybrid();
  n.max_context = 4096;
  const PoolSizes s = size_pools(n, 1024 * kMiB);
  EXPECT_GE(s.pages, 4096 / kPageTokens);
  EXPECT_GE(s.slots, 45);  // the rest
  EXPECT_LE(bytes_of(n, s), 1024 * kMiB);
}

TEST(PoolSizes, PlentyOfMemoryGivesSnapshotsHalf) {
  const PoolNeeds n = hybrid();
  const PoolSizes s = size_pools(n, 16384 * kMiB);
  EXPECT_NEAR(static_cast<double>(s.slots) * static_cast<double>(n.slot_bytes), 8192.0 * kMiB,
              static_cast<double>(n.slot_bytes));
  EXPECT_GT(s.pages * kPageTokens, 262144);
}

TEST(PoolSizes, WithoutRecurrentLayersAllIsForPages) {
  PoolNeeds n = hybrid();
  n.recurrent = false;
  n.slot_bytes = 0;
  const PoolSizes s = size_pools(n, 1024 * kMiB);
  EXPECT_EQ(s.slots, 65);
  EXPECT_EQ(s.pages, static_cast<int>(1024 * kMiB / n.page_bytes));
  n.max_context = 64;
  EXPECT_EQ(size_pools(n, 1024 * kMiB).pages, 32 * 4);  // more could never be used
}

TEST(PoolSizes, NumbersThatAreGivenHold) {
  PoolNeeds n = hybrid();
  n.pages = 7;
  n.slots = 5;
  const PoolSizes s = size_pools(n, kMiB);
  EXPECT_EQ(s.pages, 7);
  EXPECT_EQ(s.slots, 5);
  n.slots = 1;
  EXPECT_THROW(size_pools(n, kMiB), Error);
}

TEST(PoolSizes, TooLittleIsRefusedWithWhatIsNeeded) {
  PoolNeeds n = hybrid();
  for (const bool tapes : {false, true}) {
    n.tapes = tapes;
    std::string text;
    try {
      size_pools(n, 50 * kMiB);
    } catch (const Error& e) {
      text = e.what();
    }
    ASSERT_NE(text.find("at least "), std::string::npos) << text;
    const auto least = static_cast<std::size_t>(std::stoi(text.substr(text.find("at least ") + 9)));
    const PoolSizes s = size_pools(n, least * kMiB);
    EXPECT_GE(s.pages * kPageTokens, kLeastContext);
    EXPECT_GE(s.slots, 2);
    if (!tapes) {
      EXPECT_THROW(size_pools(n, (least - 2) * kMiB), Error);
    }
  }
}

}  // namespace
}  // namespace strata
