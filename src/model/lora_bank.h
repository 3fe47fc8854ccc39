// LoraBank: the adapters that a model's batches may name, in a fixed number of slots.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "loader/lora_adapter.h"
#include "model/model.h"
#include "ops/lora.h"

namespace strata {

inline constexpr int kMaxLoraRank = 256;

struct LoraLimits {
  int adapters = 1;         // slots
  int rank = kMaxLoraRank;  // of a target at most; no more than kMaxLoraRank
};

// A batch names slots in `adapters` and points at tables() in `lora`. Model and backend outlive the bank. The
// backend's thread uses it, between steps; nothing here waits for one. check() may be called from any thread.
class LoraBank {
 public:
  // Error for limits out of range.
  LoraBank(const Model& model, Ops& ops, const LoraLimits& limits);
  ~LoraBank();
  LoraBank(const LoraBank&) = delete;
  LoraBank& operator=(const LoraBank&) = delete;

  // Error naming the target that the model has not, that does not fit, or whose rank is above the limit.
  void check(const LoraAdapter& adapter) const;
  // check(), then packs the adapter into a slot in the place of what was there. On Error the slot is empty.
  void put(int slot, const LoraAdapter& adapter);
  void drop(int slot);

  // Published names that targets may have, sorted; those of one expert with "*" for its number.
  std::vector<std::string> names() const;
  int slots() const { return limits_.adapters; }
  const LoraLimits& limits() const { return limits_; }
  std::size_t bytes(int slot) const;  // packed; 0 = empty
  const LoraTables& tables() const { return tables_; }

 private:
  struct Site;   // where a published matrix lies in one of the model's
  struct Block;  // what an adapter adds at the sites of one published name in one matrix
  struct Slot;

  std::vector<Block> place(const LoraAdapter& adapter) const;
  LoraPair pack(const std::vector<Block>& blocks) const;

  Ops& ops_;
  LoraLimits limits_;
  std::unordered_map<std::string, std::vector<Site>>
      sites_;  // by published name; those of one matrix side by side
  std::vector<Slot> held_;
  LoraTables tables_;
};

}  // namespace strata
