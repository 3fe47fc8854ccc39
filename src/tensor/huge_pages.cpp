#include "tensor/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "tensor/out_of_memory.h"

namespace strata {
namespace {

std::size_t whole_pages(std::size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

std::byte* map_huge_pages(std::size_t bytes, std::size_t alignment) {
  // Over-map so that an aligned range lies inside, then give back the ends.
  const std::size_t whole = whole_pages(bytes);
  void* p = mmap(nullptr, whole + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw OutOfMemory("out of memory: {} bytes", bytes);
  auto* begin = static_cast<std::byte*>(p);
  const std::size_t head = (alignment - reinterpret_cast<std::uintptr_t>(begin) % alignment) % alignment;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + whole, alignment - head);
  madvise(begin + head, whole, MADV_HUGEPAGE);
  return begin + head;
}

void unmap_huge_pages(void* begin, std::size_t bytes) { munmap(begin, whole_pages(bytes)); }

}  // namespace strata
