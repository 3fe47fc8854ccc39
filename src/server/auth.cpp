#include "server/auth.h"

#include <fstream>

#include "base/error.h"
#include "server/http_wire.h"

namespace strata {
namespace {

// Looks at every byte whatever it finds; only the length of what was sent shows in the time.
bool equal_in_constant_time(std::string_view key, std::string_view sent) {
  volatile unsigned difference = key.size() == sent.size() ? 0 : 1;
  for (std::size_t i = 0; i < sent.size(); ++i)
    difference = difference | static_cast<unsigned>(static_cast<unsigned char>(sent[i]) ^
                                                    static_cast<unsigned char>(key[i % key.size()]));
  return difference == 0;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\t'))
    text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

}  // namespace

ApiKeys::ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (const std::string& key : keys_)
    if (key.empty()) throw Error("an API key must not be empty");
}

std::vector<std::string> ApiKeys::read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw Error("cannot read the API keys in {}", path.string());
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string_view key = trim(line);
    if (!key.empty() && key[0] != '#') keys.emplace_back(key);
  }
  if (keys.empty()) throw Error("{} holds no API key", path.string());
  return keys;
}

bool ApiKeys::allow(const HttpRequest& request) const {
  if (keys_.empty()) return true;
  std::string_view sent = request.header("x-api-key");
  const std::string_view bearer = request.header("authorization");
  if (bearer.size() > 7 && lower_case(bearer.substr(0, 7)) == "bearer ") sent = trim(bearer.substr(7));
  bool found = false;
  for (const std::string& key : keys_) found = equal_in_constant_time(key, sent) || found;
  return found;
}

}  // namespace strata
