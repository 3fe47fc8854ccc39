// Memory in huge pages.
#pragma once

#include <cstddef>

namespace strata {

inline constexpr std::size_t kHugePage = 2U << 20;
inline constexpr std::size_t kHugeFrom = 4U << 20;  // bytes from which whole huge pages are not too much

// Zeros, at a multiple of `alignment`, which is one of kHugePage. Throws OutOfMemory.
std::byte* map_huge_pages(std::size_t bytes, std::size_t alignment = kHugePage);
// The same `bytes`.
void unmap_huge_pages(void* begin, std::size_t bytes);

}  // namespace strata
