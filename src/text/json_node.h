// A place in a JSON file that knows its path, so that what is wrong there can be named.
#pragma once

#include <fmt/format.h>
#include <simdjson.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace strata {

// A view; must not outlive the parser that made the element.
class JsonNode {
 public:
  // `path` starts with the name of the file.
  JsonNode(simdjson::dom::element element, std::string path) : element_(element), path_(std::move(path)) {}

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  // The member `key`; absent or null is nothing.
  std::optional<JsonNode> find(std::string_view key) const {
    simdjson::dom::element value;
    if (object().at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return JsonNode(value, fmt::format("{}.{}", path_, key));
  }
  JsonNode at(std::string_view key) const {
    auto node = find(key);
    if (!node) fail("\"{}\" is missing", key);
    return *node;
  }
  // Refuses members that are not among these.
  void only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : object()) {
      bool found = false;
      for (const std::string_view name : known) found = found || name == key;
      if (!found) fail("\"{}\" is not understood", key);
    }
  }

  simdjson::dom::object object() const { return get<simdjson::dom::object>("an object"); }
  simdjson::dom::array array() const { return get<simdjson::dom::array>("a list"); }
  std::string_view string() const { return get<std::string_view>("a string"); }
  bool boolean() const { return get<bool>("true or false"); }
  double number() const { return get<double>("a number"); }
  // A whole number in [0, 2^31).
  int index() const {
    const auto value = get<int64_t>("a whole number");
    if (value < 0 || value > 0x7FFFFFFF) fail("{} is out of range", value);
    return static_cast<int>(value);
  }
  bool is_string() const { return element_.is_string(); }
  bool is_array() const { return element_.is_array(); }

  bool boolean_or(std::string_view key, bool otherwise) const {
    const auto node = find(key);
    return node ? node->boolean() : otherwise;
  }
  // Calls f(JsonNode) for each element of this list.
  template <typename F>
  void each(const F& f) const {
    size_t i = 0;
    for (const auto element : array()) f(JsonNode(element, fmt::format("{}[{}]", path_, i++)));
  }

 private:
  template <typename T>
  T get(std::string_view wanted) const {
    T value;
    if (element_.get(value) != simdjson::SUCCESS) fail("must be {}", wanted);
    return value;
  }

  simdjson::dom::element element_;
  std::string path_;
};

}  // namespace strata
