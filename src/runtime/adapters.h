// Adapters: the LoRA adapters that requests may name, and which of them the model's slots hold.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loader/lora_adapter.h"

namespace strata {

// One load of an adapter. Immutable; a sequence keeps its own to the end, whatever becomes of the name.
struct Adapter {
  std::string name;
  std::uint64_t generation = 0;  // of this process, never twice: a name loaded again is another adapter
  LoraAdapter weights;
};

// Adapters by name. Safe to call from any thread.
class AdapterRegistry {
 public:
  // False when the name is taken and not to be `replaced`. The generation that a replaced name had goes to retired().
  bool add(const std::string& name, LoraAdapter weights, bool replace);
  bool remove(const std::string& name);  // false: there is none
  std::shared_ptr<const Adapter> find(const std::string& name) const;  // null: there is none
  std::vector<std::string> names() const;
  // Generations without a name since the last call: their slots can be emptied when no sequence uses them.
  std::vector<std::uint64_t> take_retired();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Adapter>> adapters_;
  std::vector<std::uint64_t> retired_;
  std::uint64_t last_ = 0;
};

// Which generation each slot is for, and how many sequences use it. Numbers only. One thread.
class AdapterSlots {
 public:
  explicit AdapterSlots(int slots) : slots_(static_cast<std::size_t>(slots)) {}

  // Whether acquire() would find a slot.
  bool fits(std::uint64_t generation) const { return choose(generation) >= 0; }
  // A slot for the generation, pinned: the one it has, else an empty one, else the one unused longest. -1: all are pinned.
  int acquire(std::uint64_t generation);
  void release(int slot);
  // Empties the slot of a generation that nobody uses; returns it, or -1 when it has none. `pinned`: somebody does.
  int empty(std::uint64_t generation, bool& pinned);
  int pinned() const;

 private:
  struct Slot {
    std::uint64_t generation = 0;  // 0 = empty
    int users = 0;
    std::uint64_t used = 0;        // when, in acquisitions
  };
  int choose(std::uint64_t generation) const;

  std::vector<Slot> slots_;
  std::uint64_t clock_ = 0;
};

}  // namespace strata
