#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace strata {

tl::expected<std::string, ApiError> Service::adapter_of(const std::optional<std::string>& model) const {
  if (!model || std::find(names.begin(), names.end(), *model) != names.end()) return std::string();
  const std::vector<std::string> adapters = generator->adapters();
  if (std::find(adapters.begin(), adapters.end(), *model) != adapters.end()) return *model;
  return tl::unexpected<ApiError>(
      ApiError{404,
               fmt::format("the model {:?} does not exist; GET /v1/models lists what does",
                           std::string_view(*model).substr(0, 100)),
               "model", "model_not_found"});
}

std::string make_id(std::string_view prefix) {
  static constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace strata
