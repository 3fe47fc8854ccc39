// The key-value part of a GGUF file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace strata {

// A value as the file has it, integers of all widths as one; texts are views of the mapped file (or of the writer's caller).
using GgufInts = std::vector<std::int64_t>;
using GgufFloats = std::vector<double>;
using GgufTexts = std::vector<std::string_view>;
using GgufBools = std::vector<bool>;
using GgufValue = std::variant<std::int64_t, double, bool, std::string_view, GgufInts, GgufFloats, GgufTexts, GgufBools>;

// Fixed once read; any thread may use it while the file stays mapped. Errors name the file and the key.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string origin) : origin_(std::move(origin)) {}

  void add(std::string_view key, GgufValue value);  // Error when the key is there already
  bool has(std::string_view key) const { return values_.contains(key); }
  const GgufValue* find(std::string_view key) const;

  std::int64_t get_int(std::string_view key) const;  // Error when absent or no integer
  std::int64_t get_int(std::string_view key, std::int64_t otherwise) const { return has(key) ? get_int(key) : otherwise; }
  double get_float(std::string_view key) const;      // an integer too
  bool get_bool(std::string_view key) const;
  std::string get_text(std::string_view key) const;
  std::string get_text(std::string_view key, std::string otherwise) const { return has(key) ? get_text(key) : std::move(otherwise); }
  const GgufTexts& get_texts(std::string_view key) const;
  GgufInts get_ints(std::string_view key) const;      // a list; of booleans too
  GgufFloats get_floats(std::string_view key) const;  // a list; of integers too
  // One integer, or a list of equal ones (files may give a number for each layer).
  std::int64_t get_common_int(std::string_view key) const;

  const std::string& origin() const { return origin_; }
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

 private:
  const GgufValue& at(std::string_view key) const;
  [[noreturn]] void expected(std::string_view key, std::string_view what) const;

  std::string origin_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace strata
