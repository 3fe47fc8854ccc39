// API keys: who may use the server.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace strata {

// Immutable. Without keys everybody may.
class ApiKeys {
 public:
  ApiKeys() = default;
  explicit ApiKeys(std::vector<std::string> keys);
  // One key a line; empty lines and lines that begin with # are skipped. Throws Error.
  static std::vector<std::string> read_file(const std::filesystem::path& path);

  // By "Authorization: Bearer KEY" or "X-Api-Key: KEY". Takes the same time for every wrong key of a length.
  bool allow(const HttpRequest& request) const;
  bool empty() const { return keys_.empty(); }

 private:
  std::vector<std::string> keys_;
};

}  // namespace strata
