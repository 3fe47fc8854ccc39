#include "text/word_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace strata {

WordCache::WordCache() : places_(std::make_unique<Place[]>(kPlaces)) {}

bool WordCache::find(std::string_view word, std::vector<int>& out) const {
  if (word.size() > sizeof Place::word) return false;
  const size_t index = XXH3_64bits(word.data(), word.size()) % kPlaces;
  const Place& place = places_[index];
  const std::lock_guard lock(stripes_[index % kStripes]);
  if (place.length != word.size() || std::memcmp(place.word, word.data(), word.size()) != 0) return false;
  out.insert(out.end(), place.ids, place.ids + place.count);
  return true;
}

void WordCache::keep(std::string_view word, const int* ids, size_t count) const {
  if (word.empty() || word.size() > sizeof Place::word || count > std::size(Place{}.ids)) return;
  const size_t index = XXH3_64bits(word.data(), word.size()) % kPlaces;
  Place& place = places_[index];
  const std::lock_guard lock(stripes_[index % kStripes]);
  place.length = static_cast<uint8_t>(word.size());
  place.count = static_cast<uint8_t>(count);
  std::memcpy(place.word, word.data(), word.size());
  std::copy_n(ids, count, place.ids);
}

}  // namespace strata
