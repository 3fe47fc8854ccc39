// Remembers the tokens of short words, because text repeats its words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace strata {

// A fixed table in which a word has one place, and a newcomer takes it: no growth, and nothing to gain from
// words chosen to collide. Safe to use from many threads: places are guarded in stripes.
class WordCache {
 public:
  WordCache();
  // Appends the ids of a word; false if it is not here.
  bool find(std::string_view word, std::vector<int>& out) const;
  // Keeps the ids of a word, if both are short enough.
  void keep(std::string_view word, const int* ids, size_t count) const;

 private:
  static constexpr size_t kPlaces = 1 << 15;  // x 64 bytes = 2 MiB
  static constexpr size_t kStripes = 64;
  // One cache line. Longer words (2 % of English text) are worked out each time.
  struct Place {
    uint8_t length = 0;
    uint8_t count = 0;
    char word[30];
    int32_t ids[8];
  };
  static_assert(sizeof(Place) == 64);

  std::unique_ptr<Place[]> places_;
  mutable std::array<std::mutex, kStripes> stripes_;
};

}  // namespace strata
