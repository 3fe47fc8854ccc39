#include "runtime/pool_sizes.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/batch.h"

namespace strata {
namespace {

constexpr int kLeastSlots = 2;  // the dummy, and one sequence's

int fitting(std::size_t bytes, std::size_t each) {
  return static_cast<int>(std::min<std::size_t>(bytes / std::max<std::size_t>(each, 1), 1 << 20));
}

int pages_of(int tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

PoolSizes size_pools(const PoolNeeds& n, std::size_t memory_bytes) {
  PoolSizes sizes;
  if (n.slots > 0 && n.slots < kLeastSlots)
    throw Error("{} state slots: at least {} are needed", n.slots, kLeastSlots);
  sizes.tapes = n.tapes ? std::min(n.max_sequences, fitting(memory_bytes / 8, n.tape_bytes)) : 0;
  const std::size_t memory = memory_bytes - static_cast<std::size_t>(sizes.tapes) * n.tape_bytes;

  const int least_pages = n.pages > 0 ? n.pages : pages_of(std::min(n.max_context, kLeastContext));
  const std::size_t least = static_cast<std::size_t>(least_pages) * n.page_bytes;
  const std::size_t context = static_cast<std::size_t>(pages_of(n.max_context)) * n.page_bytes;
  const int least_slots = n.slots > 0 ? n.slots : kLeastSlots;
  const std::size_t least_for_slots = static_cast<std::size_t>(least_slots) * n.slot_bytes;
  if (least + least_for_slots > memory && (n.pages == 0 || n.slots == 0)) {
    throw Error(
        "{:.1f} MiB (--memory) are too few: {} tokens of keys and values take {:.1f} MiB, {} state slots "
        "{:.1f} MiB; "
        "give at least {:.0f} MiB",
        mib(memory_bytes), least_pages * kPageTokens, mib(least), least_slots, mib(least_for_slots),
        std::ceil(mib(least + least_for_slots) * (n.tapes ? 8. / 7 : 1)));
  }
  const std::size_t kept =
      n.pages > 0 ? least : std::clamp(std::min(context, memory / 2), least, memory - least_for_slots);
  const int wanted = 1 + 2 * n.max_sequences + n.eager_slots;
  const int most = n.recurrent ? std::max(wanted, fitting(memory / 2, n.slot_bytes)) : wanted;
  sizes.slots = n.slots > 0 ? n.slots : std::min(most, fitting(memory - kept, n.slot_bytes));

  const std::size_t left = memory - static_cast<std::size_t>(sizes.slots) * n.slot_bytes;
  sizes.pages = n.pages > 0
                    ? n.pages
                    : std::min(fitting(left, n.page_bytes), pages_of(n.max_context) * n.max_sequences * 4);
  return sizes;
}

}  // namespace strata
