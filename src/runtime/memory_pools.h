// MemoryPools: the storage behind pages, slots and tapes, sized once from what each layer declares.
#pragma once

#include <span>
#include <vector>

#include "ops/ops.h"

namespace strata {

struct PoolSizes {
  int pages = 0, slots = 0, tapes = 0;
};

// Nothing is allocated after construction. views()[i] is what layer i of `specs` is handed.
class MemoryPools {
 public:
  // Throws Error when the memory is not there, or a type is not one that states (f32), keys or values can have.
  MemoryPools(std::span<const StateSpec> specs, const PoolSizes& sizes, DType kv_dtype, Ops& ops);
  std::span<const Memory> views() const { return views_; }

  // Bytes of one page, slot or tape over all layers.
  static std::size_t page_bytes(std::span<const StateSpec> specs, DType kv_dtype);
  static std::size_t slot_bytes(std::span<const StateSpec> specs);
  static std::size_t tape_bytes(std::span<const StateSpec> specs);

 private:
  Tensor make(Ops& ops, DType dtype, const Shape& shape);

  std::vector<Buffer> buffers_;
  std::vector<Memory> views_;
};

bool has_recurrent(std::span<const StateSpec> specs);
// Every recurrent layer can replay a tape.
bool can_replay(std::span<const StateSpec> specs);

}  // namespace strata
