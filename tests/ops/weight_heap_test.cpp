// Memory of small matrices: disjoint, zeroed, and given back when the last user of a slab is gone.
#include "ops/cpu/weight_heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace strata::cpu {
namespace {

constexpr std::size_t kPage = 4096;

bool is_mapped(const std::byte* data) {
  unsigned char resident = 0;
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) / kPage * kPage);
  return mincore(page, kPage, &resident) == 0;
}

bool holds(const Buffer& buffer, int value) {
  return std::all_of(buffer.data(), buffer.data() + buffer.bytes(),
                     [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

TEST(WeightHeap, BuffersOutliveTheHeapAndEachOther) {
  std::vector<Buffer> buffers;
  std::vector<const std::byte*> places;
  {
    WeightHeap heap;
    for (int i = 0; i < 60; ++i) {  // three slabs and a half
      const std::size_t bytes = (std::size_t{2} << 20) - static_cast<std::size_t>(i) * 1001;
      buffers.push_back(heap.allocate(bytes));
      const Buffer& b = buffers.back();
      ASSERT_EQ(b.bytes(), bytes);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 64, 0U);
      ASSERT_TRUE(holds(b, 0));
      std::fill_n(b.data(), bytes, static_cast<std::byte>(i + 1));
      places.push_back(b.data());
    }
  }
  for (std::size_t i = 0; i < buffers.size(); i += 2) buffers[i] = {};
  for (std::size_t i = 1; i < buffers.size(); i += 2) {
    ASSERT_TRUE(holds(buffers[i], static_cast<int>(i) + 1)) << i;
  }
  buffers.clear();
  for (const std::byte* place : places) EXPECT_FALSE(is_mapped(place));
}

TEST(WeightHeap, AHeapThatIsLeftEmptyGivesItsSlabsBack) {
  std::optional<WeightHeap> heap(std::in_place);
  const std::byte* const place =
      heap->allocate(100'000).data();  // gone at once, the heap still allocates there
  EXPECT_TRUE(is_mapped(place));
  EXPECT_NE(heap->allocate(100'000).data(), place);
  heap.reset();
  EXPECT_FALSE(is_mapped(place));
}

TEST(WeightHeap, SmallAndLargeBuffersAreTheirOwn) {
  WeightHeap heap;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{5} << 20}) {
    const Buffer b = heap.allocate(bytes);
    EXPECT_EQ(b.bytes(), bytes);
    EXPECT_TRUE(holds(b, 0));
  }
}

}  // namespace
}  // namespace strata::cpu
