#include "ops/cpu/weight_heap.h"

#include <atomic>
#include <cstdint>
#include <new>

#include "tensor/huge_pages.h"

namespace strata::cpu {
namespace {

constexpr std::size_t kSlab = 32U << 20;  // and its alignment, by which a buffer finds it
constexpr std::size_t kLine = 64;
// Smaller ones would keep whole slabs for themselves (adapters come and go), larger ones have their own huge
// pages (Buffer::host).
constexpr std::size_t kFrom = 64U << 10, kTo = kHugeFrom;

// At the begin of a slab: its buffers, and the heap while it allocates from it.
struct alignas(kLine) Header {
  std::atomic<std::int64_t> owners{1};
};

void release(std::byte* slab) {
  if (reinterpret_cast<Header*>(slab)->owners.fetch_sub(1, std::memory_order_acq_rel) == 1)
    unmap_huge_pages(slab, kSlab);
}

std::byte* new_slab() {
  std::byte* slab = map_huge_pages(kSlab, kSlab);
  new (slab) Header;
  return slab;
}

}  // namespace

WeightHeap::~WeightHeap() {
  if (slab_ != nullptr) release(slab_);
}

Buffer WeightHeap::allocate(std::size_t bytes) {
  if (bytes < kFrom || bytes >= kTo) return Buffer::host(bytes);
  const std::size_t size = (bytes + kLine - 1) / kLine * kLine;
  if (slab_ == nullptr || used_ + size > kSlab) {
    std::byte* const fresh = new_slab();
    if (slab_ != nullptr) release(slab_);
    slab_ = fresh;
    used_ = sizeof(Header);
  }
  reinterpret_cast<Header*>(slab_)->owners.fetch_add(1, std::memory_order_relaxed);
  std::byte* const data = slab_ + used_;
  used_ += size;
  return {data, bytes, Device::kCpu, [](void* piece, std::size_t) {
            auto* const at = static_cast<std::byte*>(piece);
            release(at - reinterpret_cast<std::uintptr_t>(at) % kSlab);
          }};
}

}  // namespace strata::cpu
