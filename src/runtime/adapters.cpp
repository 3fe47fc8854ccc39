#include "runtime/adapters.h"

#include <utility>

#include "base/check.h"

namespace strata {

bool AdapterRegistry::add(const std::string& name, LoraAdapter weights, bool replace) {
  const std::lock_guard lock(mutex_);
  auto& at = adapters_[name];
  if (at != nullptr && !replace) return false;
  if (at != nullptr) retired_.push_back(at->generation);
  at = std::make_shared<const Adapter>(Adapter{name, ++last_, std::move(weights)});
  return true;
}

bool AdapterRegistry::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto at = adapters_.find(name);
  if (at == adapters_.end()) return false;
  retired_.push_back(at->second->generation);
  adapters_.erase(at);
  return true;
}

std::shared_ptr<const Adapter> AdapterRegistry::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto at = adapters_.find(name);
  return at == adapters_.end() ? nullptr : at->second;
}

std::vector<std::string> AdapterRegistry::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, adapter] : adapters_) out.push_back(name);
  return out;
}

std::vector<std::uint64_t> AdapterRegistry::take_retired() {
  const std::lock_guard lock(mutex_);
  return std::exchange(retired_, {});
}

int AdapterSlots::choose(std::uint64_t generation) const {
  int best = -1;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    const Slot& s = slots_[static_cast<std::size_t>(i)];
    if (s.generation == generation) return i;
    if (s.users > 0) continue;
    const auto age = [&](int slot) { return slots_[static_cast<std::size_t>(slot)].generation == 0 ? 0 : slots_[static_cast<std::size_t>(slot)].used; };
    if (best < 0 || age(i) < age(best)) best = i;
  }
  return best;
}

int AdapterSlots::acquire(std::uint64_t generation) {
  STRATA_CHECK(generation != 0, "an adapter without a generation");
  const int slot = choose(generation);
  if (slot < 0) return -1;
  Slot& s = slots_[static_cast<std::size_t>(slot)];
  s.generation = generation;
  s.used = ++clock_;
  ++s.users;
  return slot;
}

void AdapterSlots::release(int slot) {
  Slot& s = slots_.at(static_cast<std::size_t>(slot));
  STRATA_CHECK(s.users > 0, "adapter slot {} is released twice", slot);
  --s.users;
}

int AdapterSlots::empty(std::uint64_t generation, bool& pinned) {
  pinned = false;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].generation != generation) continue;
    pinned = slots_[i].users > 0;
    if (pinned) return -1;
    slots_[i] = {};
    return static_cast<int>(i);
  }
  return -1;
}

int AdapterSlots::pinned() const {
  int n = 0;
  for (const Slot& s : slots_) n += s.users > 0 ? 1 : 0;
  return n;
}

}  // namespace strata
