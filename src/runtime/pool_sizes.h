// How memory is split between pages, state slots and tapes.
#pragma once

#include <cstddef>

#include "runtime/memory_pools.h"

namespace strata {

// Bytes are those of one page, slot or tape over all layers.
struct PoolNeeds {
  std::size_t page_bytes = 0, slot_bytes = 0, tape_bytes = 0;
  int max_context = 0;  // tokens
  int max_sequences = 1;
  bool recurrent = false;    // the model itself keeps states, so that more slots mean more cached snapshots
  int eager_slots = 0;       // what verification without tapes takes beside
  bool tapes = false;        // verification with them
  int pages = 0, slots = 0;  // given by the user; 0 = from the memory
};

// Slots have first call for what the sequences need (one each, one for its last page boundary), but keys and
// values keep half of the memory, or a sequence of max_context where that is less; what sequences cannot have
// of slots lets fewer run at once. Of a recurrent model's memory slots take up to half, for snapshots. Tapes
// take an eighth at most: sequences without one verify eagerly. Throws Error with the numbers when not even
// one sequence of kLeastContext tokens (or max_context) fits.
inline constexpr int kLeastContext = 1024;
PoolSizes size_pools(const PoolNeeds& needs, std::size_t memory_bytes);

}  // namespace strata
