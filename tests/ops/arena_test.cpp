#include "ops/arena.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "ops/cpu/thread_pool.h"

namespace strata {
namespace {

TEST(Arena, GivesBackWhatAScopeMadeAndStopsGrowing) {
  int allocations = 0;
  Arena arena([&](std::size_t n) { ++allocations; return Buffer::host(n); }, 4096);
  void* first = nullptr;
  for (int round = 0; round < 10; ++round) {
    const Scratch scratch(arena);
    const Tensor a = arena.make({100}, DType::kF32);
    const Tensor b = arena.make({5000}, DType::kF32);  // larger than a block
    EXPECT_NE(a.raw(), b.raw());
    if (round == 0) first = a.raw();
    EXPECT_EQ(a.raw(), first);
    {
      const Scratch inner(arena);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.make({3}, DType::kBF16).raw()) % 64, 0U);
    }
  }
  EXPECT_EQ(allocations, 3);
}

TEST(ThreadPool, DoesEveryPieceOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      const std::int64_t count = round % 37;
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(count) + 1);
      pool.parallel_for(count, [&](std::int64_t i) { hits[static_cast<std::size_t>(i)].fetch_add(1); });
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(hits[static_cast<std::size_t>(i)].load(), 1);
    }
  }
}

// More threads than cores, loops of a few pieces: most workers come late, and must not touch a loop that is over.
TEST(ThreadPool, LateWorkersTakeNoPartInALaterLoop) {
  ThreadPool pool(16);
  for (int round = 0; round < 5000; ++round) {
    const auto mine = std::make_unique<std::array<std::atomic<int>, 3>>();
    pool.parallel_for(3, [hits = mine.get()](std::int64_t i) { (*hits)[static_cast<std::size_t>(i)].fetch_add(1); });
    for (const auto& hit : *mine) ASSERT_EQ(hit.load(), 1) << "round " << round;
  }
}

}  // namespace
}  // namespace strata
