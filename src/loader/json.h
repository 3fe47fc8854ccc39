// Json, a read-only view of a JSON document whose getters name the file and the path of what is wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

// A value inside a parsed document; copies share the document, which never changes, so any thread may read
// it. A key whose value is null counts as absent. Keys are plain names, not paths. Every error is an Error
// such as "config.json: rope_parameters.rope_theta: expected a number, found a string". Numbers:
// {"__float__": "Infinity"} (also "-Infinity", "NaN"), as transformers 5 writes them, and the bare words
// Infinity, -Infinity and NaN, as Python writes them, are read as floats.
class Json {
 public:
  static constexpr int kMaxDepth = 128;  // deeper documents are refused: readers of JSON recurse

  Json();  // null
  // `origin` names the document in errors. Throws Error on bad JSON or UTF-8.
  static Json parse(std::string_view text, const std::string& origin);
  static Json load(const std::filesystem::path& file);
  // The keys of `over`, and those of `under` that `over` lacks or has null. Both are objects.
  static Json merge(const Json& over, const Json& under);
  // These keys, nulls too, and those of `defaults` that are not there at all. Both are objects.
  Json with_defaults(const Json& defaults) const;

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_int() const;
  bool is_number() const;  // also the float objects above
  bool is_bool() const;

  // Of an object.
  bool has(std::string_view key) const;
  Json at(std::string_view key) const;   // Error when absent
  Json get(std::string_view key) const;  // null when absent; of null itself, null
  std::vector<std::string> keys() const;

  // Of an array (or object, for size).
  std::size_t size() const;
  Json operator[](std::size_t i) const;

  // This value as a type; as_int fails outside 32 bits, and reads 3.0 as 3.
  int as_int() const;
  std::int64_t as_int64() const;
  double as_float() const;
  bool as_bool() const;
  std::string as_string() const;
  std::vector<int> as_ints() const;
  std::vector<double> as_floats() const;
  std::vector<std::string> as_strings() const;

  // A key of this object; without `otherwise` an absent one is an Error.
  int get_int(std::string_view key) const { return at(key).as_int(); }
  int get_int(std::string_view key, int otherwise) const { return has(key) ? get_int(key) : otherwise; }
  std::int64_t get_int64(std::string_view key) const { return at(key).as_int64(); }
  double get_float(std::string_view key) const { return at(key).as_float(); }
  double get_float(std::string_view key, double otherwise) const {
    return has(key) ? get_float(key) : otherwise;
  }
  bool get_bool(std::string_view key) const { return at(key).as_bool(); }
  bool get_bool(std::string_view key, bool otherwise) const { return has(key) ? get_bool(key) : otherwise; }
  std::string get_string(std::string_view key) const { return at(key).as_string(); }
  std::string get_string(std::string_view key, std::string otherwise) const {
    return has(key) ? get_string(key) : std::move(otherwise);
  }
  std::vector<int> get_ints(std::string_view key) const { return at(key).as_ints(); }
  std::vector<double> get_floats(std::string_view key) const { return at(key).as_floats(); }
  std::vector<std::string> get_strings(std::string_view key) const { return at(key).as_strings(); }

  const std::string& origin() const { return origin_; }
  std::string where() const;  // "config.json: rope_parameters"
  std::string dump() const;   // the value as JSON text

 private:
  Json(std::shared_ptr<const nlohmann::json> value, std::string origin, std::string path);
  Json child(const nlohmann::json& value, const std::string& name) const;
  [[noreturn]] void expected(std::string_view what) const;

  std::shared_ptr<const nlohmann::json> value_;  // never null; shares ownership of the whole document
  std::string origin_, path_;
};

}  // namespace strata
